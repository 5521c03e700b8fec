"""What every test server has in common: a port, a folder, a log, and methods to start and stop it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from tests.servers.process import Process, Program, ServerError, open_to_everybody

# Below the range from which Linux takes the ports of outgoing connections. If the port of a stopped server were in that
# range, a client that tries to connect to it might get this port for its own end. Then the server could not start
# again.
PORTS = range(12_000, 32_000)
ATTEMPTS = 8


class Server:
    """One server of the tests, on 127.0.0.1, with its data in its own temporary folder.

    `with Postgres() as server:` starts it, and removes it with its data at the end. In between it may be
    stopped, killed and started again, always on the same port and with the same data.
    """

    name: ClassVar[str]
    variable: ClassVar[str]
    """The environment variable that replaces the shared server by another one."""
    hint: ClassVar[str]
    """What a person would install to get this server."""
    stop_signal: ClassVar[int] = signal.SIGTERM
    seconds_to_start: ClassVar[float] = 60.0
    keeps_data: ClassVar[tuple[str, ...]] = ()
    """Arguments with which its data survives a restart; most servers need none."""

    def __init__(self, *args: str) -> None:
        self.args = args
        self.port = 0
        self.program = self.found()
        self.user: str | None = None
        self._folder: Path | None = None
        self._process: Process | None = None
        self._held: socket.socket | None = None
        self._log_start = 0

    # What each kind of server defines.

    @classmethod
    def find(cls) -> Program | None:
        """Return the program, if this machine has it."""
        raise NotImplementedError

    @classmethod
    def install(cls) -> None:
        """Put the program below `.servers/`."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Return the URL for `fairlane.connect`."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make what the first start needs inside the folder."""

    def arguments(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Return whether this process answers, and not another server that has taken the port before."""
        raise NotImplementedError

    # Start and stop.

    @classmethod
    def found(cls) -> Program:
        program = cls.find()
        if program is None:
            raise ServerError(f"no {cls.name} server on this machine: {cls.hint}")
        return program

    @classmethod
    @contextlib.contextmanager
    def private(cls, *args: str) -> Iterator[Self]:
        """Return a running server for one test only; `args` are added to its command line."""
        with cls(*args) as server:
            yield server

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, or start it again on its old port with its old data."""
        if self.running:
            return
        first = self._folder is None
        try:
            if first:
                self._folder = self._make_folder()
                self.prepare()
            for attempt in range(ATTEMPTS):
                if first:
                    self.port = free_port()
                if self._try_to_start(last=attempt == ATTEMPTS - 1):
                    return
                time.sleep(0.25 * (attempt + 1))
        except BaseException:
            if first:
                self.close()
            raise

    def stop(self) -> None:
        """End it in order; data and port are kept for another `start`."""
        if self._process is not None:
            self._process.stop()
            self._hold_port()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._hold_port()

    def restart(self, *, kill: bool = False) -> None:
        """Stop (or kill) it and start it again: same port, same data, same URL."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        self._release_port()
        self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        assert self._process is not None, "never started"
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        return [self.pid] if self.running else []

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "never started"
        return self._folder

    def log(self) -> str:
        """Return all that it has printed since its last start."""
        path = self.folder / "log"
        if not path.exists():
            return ""
        return path.read_bytes()[self._log_start :].decode(errors="replace")

    # How it starts.

    def _make_folder(self) -> Path:
        parent = Path(tempfile.gettempdir())
        if self.user and not open_to_everybody(parent / "x"):
            parent = Path("/tmp")
        folder = Path(tempfile.mkdtemp(prefix=f"fairlane-{self.name}-", dir=parent))
        if self.user:
            shutil.chown(folder, self.user)
        return folder

    def _try_to_start(self, *, last: bool) -> bool:
        """Return False if its port (or, after a crash, a lock of the previous process) was still taken."""
        self._release_port()
        path = self.folder / "log"
        self._log_start = path.stat().st_size if path.exists() else 0
        self._process = Process(
            self.program,
            self.arguments(),
            folder=self.folder,
            log=path,
            stop_signal=self.stop_signal,
            user=self.user,
        )
        deadline = time.monotonic() + self.seconds_to_start
        while self._process.running:
            if self.is_ready():
                return True
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"{self.name} was not ready in time. {self._tail()}")
            time.sleep(0.02)
        if "in use" in self.log() and not last:
            return False
        raise ServerError(f"{self.name} did not start. {self._tail()}")

    def _hold_port(self) -> None:
        """Keep the port away from other tests' servers while this one is down, since its clients still connect to
        it."""
        if self._held is None and self.port:
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the old process may still exist
            with contextlib.suppress(OSError):
                held.bind(("127.0.0.1", self.port))
            # otherwise other sockets that allow it could be bound to the port too, since no socket listens on it
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            self._held = held

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _tail(self) -> str:
        lines = self.log().splitlines()[-40:]
        return "The end of its log:\n" + "\n".join(f"    {line}" for line in lines)


def free_port() -> int:
    """Return a free port of 127.0.0.1. Another process may take it before the caller does, so be ready to retry."""
    for port in random.SystemRandom().sample(PORTS, 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError("no free port on 127.0.0.1")


def which(*names: str, folders: tuple[str, ...] = ()) -> Path | None:
    """Return the first of these programs on the PATH or in one of the folders that distributions use."""
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/bin", "/usr/bin", "/usr/sbin", *folders])
    for name in names:
        if path := shutil.which(name, path=search):
            return Path(path)
    return None
