"""The package as users get it: an sdist, a wheel made of it, and a clean environment outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(600)]


def call(*command: str | Path, cwd: Path, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder that is not the checkout, with nothing of the checkout in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FAIRLANE", "STM_"))}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=kept, capture_output=True, text=True)
    assert done.returncode in ok, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, as `python -m build` does it."""
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    assert len(list(out.glob("*.tar.gz"))) == 1
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that holds the wheel and its dependencies, and no extra."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=True)
    call(home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=home)
    return home / "bin"


def test_the_wheel_holds_every_template_and_nothing_else_of_the_checkout(wheel: Path) -> None:
    """Guards against a template that works from the checkout and is missing in the wheel, and against stray files."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = listed.stdout.splitlines()
    bundled = [f"fairlane/_bundled/{name}" for name in tracked if name.startswith(("schema/", "procedures/", "lua/"))]
    modules = [name.removeprefix("src/") for name in tracked if name.startswith("src/")]
    examples = [f"fairlane/_bundled/{name}" for name in tracked if name.startswith("examples/")]
    missing = {*bundled, *modules, "fairlane/_bundled/alembic.ini"} - names
    assert not missing
    assert not {name for name in names if name.startswith("fairlane/_bundled/")} - {
        *bundled,
        *examples,
        "fairlane/_bundled/alembic.ini",
    }
    assert "fairlane/py.typed" in names


def test_the_wheel_migrates_and_runs_on_sqlite(installed: Path, tmp_path: Path) -> None:
    """Guards against anything that needs the checkout, or an extra, for the embedded default."""
    fairlane, url = installed / "fairlane", "sqlite:///queue.db"
    call(fairlane, "migrate", "--url", url, cwd=tmp_path)
    call(fairlane, "status", "--url", url, cwd=tmp_path)
    program = (
        "import fairlane\n"
        f"with fairlane.connect({url!r}) as queue:\n"
        "    queue.publish('order', {'n': 1})\n"
        "    lease = queue.claim('worker', 30)\n"
        "    assert lease.event == {'n': 1}, lease\n"
        "    queue.ack(lease)\n"
        "    assert queue.claim('worker', 30) is None\n"
    )
    call(installed / "python", "-c", program, cwd=tmp_path)


def test_the_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    """Guards against a demo that finds its log only in the checkout."""
    done = call(installed / "fairlane", "demo", "--events", "300", cwd=tmp_path)
    assert "fails" not in done.stdout


@pytest.mark.parametrize(("url", "extra"), [("postgresql://127.0.0.1/x", "postgres"), ("redis://127.0.0.1/0", "redis")])
def test_a_missing_extra_is_named(installed: Path, tmp_path: Path, url: str, extra: str) -> None:
    """Guards against a bare ImportError, or a traceback, where an extra is not installed."""
    done = call(installed / "fairlane", "stats", "--url", url, cwd=tmp_path, ok=(2,))
    assert f"fairlane[{extra}]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
