"""mongoeco, an emulator that speaks MongoDB's protocol, from PyPI. `FAIRLANE_TEST_MONGO_URL` replaces it.

It needs Python >= 3.13, so it has its own virtual environment. It keeps its data in memory, unless it is started with
`private("sqlite")`. Its inserts get slow if a collection has more than about 300 documents.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.process import Program, ServerError

VERSION = "4.11.0"
REQUIREMENTS = (f"mongoeco=={VERSION}", "pymongo>=4.13")  # it decodes what clients send with pymongo's bson
FOLDER = f"mongoeco-{VERSION}"
OLDEST_PYTHON = (3, 13)
SCRIPT = Path(__file__).with_name("mongoeco_main.py")


class Mongoeco(Server):
    name: ClassVar[str] = "mongoeco"
    variable: ClassVar[str] = "FAIRLANE_TEST_MONGO_URL"
    hint: ClassVar[str] = "install Python >= 3.13, in which it runs, or set FAIRLANE_TEST_MONGO_URL"
    keeps_data: ClassVar[tuple[str, ...]] = ("sqlite",)

    @classmethod
    def find(cls) -> Program | None:
        python = packages.folder() / FOLDER / "bin" / "python"
        return Program(python) if python.exists() else None

    @classmethod
    def install(cls) -> None:
        if cls.find() is not None:
            return
        python = find_python()
        if python is None:
            raise ServerError(f"no Python >= 3.13 on this machine: {cls.hint}")

        def fill(new: Path) -> None:
            packages.run(python, "-m", "venv", new)
            pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            packages.run(new / "bin" / "python", *pip, *REQUIREMENTS)

        packages.into(FOLDER, fill)

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def arguments(self) -> list[str]:
        return ["-I", str(SCRIPT), str(self.port), str(self.folder), *(self.args or ("memory",))]

    def is_ready(self) -> bool:
        return "mongoeco is ready" in self.log()


def find_python() -> Path | None:
    """Return the first Python that is recent enough, on the PATH or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = (which("python3"), *(which(f"python3.{minor}") for minor in range(13, 20)))
    candidates = [path for path in on_path if path] + sorted(pyenv.glob("versions/3.*/bin/python3"))
    return next((path for path in candidates if version(path) >= OLDEST_PYTHON), None)


def version(python: Path) -> tuple[int, int]:
    """Return the version, such as (3, 13), or (0, 0) if it does not run: pyenv puts a command for each version on the
    PATH, even if that version is not active."""
    asked = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"Python (\d+)\.(\d+)", asked.stdout)
    return (int(found[1]), int(found[2])) if found and asked.returncode == 0 else (0, 0)


find = Mongoeco.find
install = Mongoeco.install
private = Mongoeco.private
