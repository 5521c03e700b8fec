"""The stand-in for rqlite (see `tests/servers/rqlite`) as a process: three nodes that all tests share.

`FAIRLANE_TEST_RQLITE_URL` replaces it by a real cluster. A test that breaks nodes or answers uses
`tests.servers.rqlite.private(…)`, which runs inside the test and has switches for that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

from tests.servers.base import Server
from tests.servers.install import CHECKOUT
from tests.servers.process import Program

NODES = 3


class Rqlite(Server):
    name: ClassVar[str] = "rqlite"
    variable: ClassVar[str] = "FAIRLANE_TEST_RQLITE_URL"
    hint: ClassVar[str] = "it is part of the tests"

    @classmethod
    def find(cls) -> Program | None:
        return Program(Path(sys.executable), {"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"})

    @classmethod
    def install(cls) -> None:
        """Nothing to do."""

    @property
    def url(self) -> str:
        return str(self._where()["url"])

    @property
    def control(self) -> str:
        """Return the address to POST faults to: see `tests/servers/rqlite/control.py`. It is another one after each
        start."""
        return str(self._where()["control"])

    def arguments(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        module = ("-m", "tests.servers.rqlite")
        return [*module, "--nodes", str(NODES), "--port", str(self.port), "--data", str(data), *self.args]

    def is_ready(self) -> bool:
        return bool(self._where())

    def _where(self) -> dict[str, str | list[str]]:
        """Return what the process prints in its first line."""
        line, newline, _ = self.log().partition("\n")
        return dict(json.loads(line)) if newline and line.startswith("{") else {}


find = Rqlite.find
install = Rqlite.install
private = Rqlite.private
