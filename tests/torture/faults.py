"""The faults while clients work: each fault is one method, and the choice is random."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fairlane import migrate
from tests.harness.proxy import Proxy
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[2]


class Clients:
    """The processes of publishers and workers. One that is killed is replaced by another with a new name."""

    def __init__(self, folder: Path, url: str, queue: str, roles: list[tuple[str, str]], seed: int) -> None:
        self._folder = folder
        self._url = url
        self._queue = queue
        self._seed = seed
        self._number = 0
        self.stopped: set[str] = set()
        """Clients that were stopped for a while: the duration of their calls does not count."""
        self._running: dict[str, tuple[subprocess.Popen[bytes], tuple[str, str]]] = {}
        for role in roles:
            self._start(role)

    def _start(self, role: tuple[str, str]) -> None:
        self._number += 1
        name = f"{role[0]}-{role[1]}-{self._number}"
        command = [sys.executable, "-m", "tests.torture.actor", *role, self._url, self._queue]
        errors = (self._folder / f"{name}.err").open("wb")
        process = subprocess.Popen(
            [*command, str(self._folder / f"{name}.log"), f"{self._seed}-{self._number}"],
            cwd=ROOT,
            stdout=errors,
            stderr=errors,
        )
        errors.close()
        self._running[name] = process, role

    def pick(self, chance: random.Random) -> str:
        return chance.choice(sorted(self._running))

    def kill(self, name: str) -> None:
        process, role = self._running.pop(name)
        process.kill()
        process.wait()
        self._start(role)

    def freeze(self, name: str, seconds: float) -> None:
        process, _ = self._running[name]
        self.stopped.add(name)
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def end(self) -> list[str]:
        """Let all of them finish. Return what is wrong with the way they ended."""
        for process, _ in self._running.values():
            process.terminate()
        return [line for name, (process, _) in self._running.items() if (line := self._ended(name, process))]

    def _ended(self, name: str, process: subprocess.Popen[bytes]) -> str | None:
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"slow: {name} did not end within 60 s"
        printed = (self._folder / f"{name}.err").read_text(errors="replace").strip()
        if printed or code not in (0, -signal.SIGTERM):  # the latter: it had not begun yet
            return f"raw: {name} ended with code {code} and printed: {printed[-800:]}"
        return None


class Faults:
    """Causes one fault after the other, until it is told to stop."""

    def __init__(self, clients: Clients, proxy: Proxy | None, server: Server | None, url: str, queue: str) -> None:
        self._clients = clients
        self._proxy = proxy
        self._server = server
        self._url = url
        self._queue = queue
        self.counts: dict[str, int] = {}

    def kinds(self) -> list[Callable[[random.Random], None]]:
        found: list[Callable[[random.Random], None]] = [self.kill_client, self.freeze_client, self.migrate_again]
        if self._proxy is not None:
            found += [self.cut, self.cut, self.delay, self.half_close, self.silence]
        if self._server is not None:
            found += [self.kill_server]
        if self._url.startswith("postgres"):
            found += [self.end_sessions, self.vacuum]
        return found

    def run(self, seconds: float, chance: random.Random) -> None:
        end = time.monotonic() + seconds
        kinds = self.kinds()
        while (rest := end - time.monotonic()) > 0:
            time.sleep(min(rest, chance.uniform(0.3, 1.5)))
            fault = chance.choice(kinds)
            self.counts[fault.__name__] = self.counts.get(fault.__name__, 0) + 1
            fault(chance)
        if self._proxy is not None:
            self._proxy.delay = 0.0
            self._proxy.resume()

    def kill_client(self, chance: random.Random) -> None:
        self._clients.kill(self._clients.pick(chance))

    def freeze_client(self, chance: random.Random) -> None:
        """Stop a client for longer than a lease, as a page fault or a debugger would."""
        self._clients.freeze(self._clients.pick(chance), chance.uniform(0.5, 2.5))

    def migrate_again(self, chance: random.Random) -> None:
        """Migrate to the queue's current revision: this changes nothing, also while clients work."""
        with contextlib.suppress(Exception):  # the server may be down at this moment
            migrate.upgrade(self._url, queue=self._queue)

    def cut(self, chance: random.Random) -> None:
        assert self._proxy is not None
        self._proxy.cut(reset=chance.random() < 0.5)

    def delay(self, chance: random.Random) -> None:
        assert self._proxy is not None
        self._proxy.delay = chance.uniform(0.0, 0.1)
        time.sleep(0.5)
        self._proxy.delay = 0.0

    def half_close(self, chance: random.Random) -> None:
        assert self._proxy is not None
        self._proxy.half_close()

    def silence(self, chance: random.Random) -> None:
        assert self._proxy is not None
        self._proxy.silence()
        time.sleep(chance.uniform(0.2, 3.0))
        self._proxy.resume()

    def kill_server(self, chance: random.Random) -> None:
        assert self._server is not None
        self._server.restart(kill=True)

    def end_sessions(self, chance: random.Random) -> None:
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and backend_type = 'client backend' and random() < 0.5"
            )

    def vacuum(self, chance: random.Random) -> None:
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("set lock_timeout = '2s'")
            connection.execute(f'vacuum full "{self._queue}".groups')
