"""CONTRIBUTING's recipe for a backend works: if it is followed exactly, the contract suite runs on a ninth backend."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import CHECKOUT, environment

RECIPE = (CHECKOUT / "CONTRIBUTING.md").read_text().partition("## Add a backend")[2]
FILE = re.compile(r"^   `(?P<path>\S+)`\n\n   ```python\n(?P<text>.*?)^   ```$", re.DOTALL | re.MULTILINE)
CHANGE = re.compile(r"`(?P<path>\S+)`:\n\n   ```diff\n(?P<lines>.*?)^   ```$", re.DOTALL | re.MULTILINE)


def hunks(lines: str) -> Iterator[tuple[str, str]]:
    """Return the text before and after each change: lines with a minus, then lines with a plus."""
    for before, after in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", textwrap.dedent(lines), re.MULTILINE):
        yield re.sub(r"^-", "", before, flags=re.MULTILINE), re.sub(r"^\+", "", after, flags=re.MULTILINE)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout in which the recipe was followed."""
    for name in ("src", "tests", "schema", "procedures", "lua", "docs", "alembic.ini", "pyproject.toml", "README.md"):
        origin, copy = CHECKOUT / name, tmp_path / name
        if origin.is_dir():
            shutil.copytree(origin, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, copy)
    for found in FILE.finditer(RECIPE):
        path = tmp_path / found["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(found["text"]))
    for found in CHANGE.finditer(RECIPE):
        path = tmp_path / found["path"]
        text = path.read_text()
        for before, after in hunks(found["lines"]):
            assert text.count(before) == 1, f"{found['path']} has not exactly one {before!r}"
            text = text.replace(before, after)
        path.write_text(text)
    return tmp_path


def in_copy(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=environment({"PYTHONPATH": f"{checkout / 'src'}:{checkout}"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(600)
def test_the_contract_suite_runs_on_a_backend_made_by_the_recipe(checkout: Path) -> None:
    """Guards against a place that must know of a new backend and is missing in the recipe."""
    said = in_copy(checkout, "-m", "pytest", "tests/contract", "--backends", "toy", "-q", "-p", "no:cacheprovider")
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) > 400
    assert "toy" in in_copy(checkout, "-m", "fairlane.cli", "backends")
    assert "kept" in in_copy(checkout, "-m", "tests.rooms")
