"""A server of a few lines, for tests of the code that runs servers.

Started with "broken" it ends at once; with "deaf" it never gets ready and has to be killed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from tests.servers.base import Server
from tests.servers.process import Program

SCRIPT = """
import signal, socket, sys, time
port, kind = int(sys.argv[1]), sys.argv[2]
if kind == "broken":
    sys.exit("fake is broken on purpose")
if kind == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", port)):
    if kind != "deaf":
        print("fake is ready", flush=True)
    time.sleep(3600)
"""


class Fake(Server):
    name: ClassVar[str] = "fake"
    variable: ClassVar[str] = "FAIRLANE_TEST_FAKE_URL"
    hint: ClassVar[str] = "there is nothing to install"

    @classmethod
    def find(cls) -> Program | None:
        return Program(Path(sys.executable))

    @classmethod
    def install(cls) -> None:
        pass

    @property
    def url(self) -> str:
        return f"fake://127.0.0.1:{self.port}"

    def arguments(self) -> list[str]:
        return ["-c", SCRIPT, str(self.port), *(self.args or ("",))]

    def is_ready(self) -> bool:
        return "fake is ready" in self.log()
