"""The oldest versions that `pyproject.toml` allows work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("oldest versions")]
"""Both tests use the same environment."""

ROOT = Path(__file__).parents[2]


def run(*command: object, given: str | None = None) -> str:
    done = subprocess.run([str(each) for each in command], input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with Fairlane and the lowest versions that it allows. Indirect dependencies
    are not restricted."""
    folder = tmp_path_factory.mktemp("oldest")
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--python", sys.executable, folder)
    run(*uv, "pip", "install", "--quiet", "--python", folder, "--resolution", "lowest-direct", f"{ROOT}[all]")
    return folder / "bin"


def test_every_backend_works_as_far_as_possible_without_a_server(oldest: Path, tmp_path: Path) -> None:
    assert run(oldest / "python", Path(__file__).with_name("smoke.py"), tmp_path) == "ok\n"


def test_the_command_line_works(oldest: Path, tmp_path: Path) -> None:
    """Old versions of Typer fail with recent versions of click; 0.12 fails already at `--help`."""
    program, url = oldest / "fairlane", ("--url", f"sqlite:///{tmp_path}/q.db")
    assert "publish" in run(program, "--help")
    run(program, "migrate", *url)
    run(program, "publish", "g", '{"n": 1}', *url)
    run(program, "publish", "--file", "-", *url, given='{"group": "h", "event": 2}\n')
    assert '"n": 1' in run(program, "peek", "g", *url)
    assert "h" in run(program, "groups", *url)
