"""One run: a server, a queue, clients, faults, a last drain, and the verdict."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fairlane
from fairlane import migrate
from tests.harness.proxy import Proxy
from tests.servers import SERVERS, Server
from tests.torture.actor import TIMEOUT, facts
from tests.torture.checker import check
from tests.torture.faults import Clients, Faults
from tests.torture.history import Journal, read

SERVER_OF = {"postgres": "postgres", "redis": "redis", "libsql": "sqld", "rqlite": "rqlite", "mongo": "mongoeco"}
"""The test server of each backend that has one; the others need none."""

LIMIT = TIMEOUT + 20.0
"""Seconds that a call may take: its timeout, twice if the call is repeated, and an allowance for a loaded machine."""

ROLES = [("publisher", "sync"), ("publisher", "async"), *[("worker", "sync")] * 2, ("worker", "async")]


@dataclass
class Verdict:
    """What a run has shown."""

    backend: str
    seed: int
    seconds: float
    calls: int = 0
    delivered: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        run = f"{self.backend}, seed {self.seed}, {self.seconds:.0f} s: {self.calls:,} calls, {self.delivered:,} leases"
        faults = f"{sum(self.faults.values())} faults ({kinds})"
        return "\n".join([f"{run}, {faults}; {len(self.wrong)} wrong", *self.wrong[:40]])


@contextlib.contextmanager
def place(backend: str, folder: Path) -> Iterator[tuple[str, str, Proxy | None, Server | None]]:
    """A private database: its URL without and with a proxy, the proxy, the server."""
    if backend == "sqlite":
        url = f"sqlite:///{folder / 'queue.db'}"
        yield url, url, None, None
        return
    kind = SERVERS[SERVER_OF[backend]]
    # the emulator of MongoDB that keeps its data answers "database is locked" to many clients at once: it is not killed
    emulated = backend == "mongo"
    with kind.private(*(() if emulated else kind.keeps_data)) as server, Proxy(server.port) as proxy:
        through = server.url.replace(f":{server.port}", f":{proxy.port}")
        yield server.url, through, proxy, None if emulated else server


def run(backend: str, seconds: float, seed: int, *, keep: Path | None = None) -> Verdict:
    """Torture a backend and return what was found; `keep` is a folder for the journals."""
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-torture-", dir=fast)))
        direct, through, proxy, server = stack.enter_context(place(backend, folder))
        queue = f"torture_{secrets.token_hex(4)}"
        migrate.upgrade(direct, queue=queue, startup_timeout=30)
        roles = [*ROLES, ("transactions", "sync")] if backend == "postgres" else ROLES
        clients = Clients(folder, through, queue, roles, seed)
        faults = Faults(clients, proxy, server, direct, queue)
        faults.run(seconds, chance)
        wrong = clients.end()
        wrong += drain(direct, queue, Journal(folder / "drain.log"))
        calls = read(folder)
        wrong += check(calls, limit=LIMIT, stopped=frozenset(clients.stopped))
    leases = sum(call.operation == "claim" and call.ok and call.result is not None for call in calls)
    return Verdict(backend, seed, seconds, len(calls), leases, faults.counts, wrong)


def drain(url: str, queue: str, journal: Journal) -> list[str]:
    """Claim and ack until nothing is left, also the messages of abandoned leases. Give up when none came for two
    minutes, which is longer than any lease lasts: how many are left says nothing, since some servers are slow."""
    with fairlane.connect(url, queue, startup_timeout=30) as transport:
        last = time.monotonic()
        while time.monotonic() - last < 120:
            with journal.call("claim", visibility=30.0) as entry:
                lease: Any = transport.claim("drain", 30.0)
                entry.returned(facts(lease) if lease else None)
            if lease is not None:
                last = time.monotonic()
                with journal.call("ack", token=lease.token) as entry:
                    transport.ack(lease)
                    entry.returned()
            elif transport.inspect.queue().messages == 0:
                return []
            else:
                time.sleep(0.1)
        return [f"left: {transport.inspect.queue().messages} messages are there and cannot be claimed"]
