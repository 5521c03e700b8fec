"""Measure claim and ack on backends without a peer to compare with: libSQL and rqlite, whose costs are requests.

Three things count. The first is the number of requests in a cycle. The second is whether the time stays the same for
every size of the queue. The third, on libSQL, is the ratio to two bare `UPDATE … RETURNING` through the same client.
The speed of the stand-in of rqlite proves nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.cases import Case, scaled
from bench.ours import Ours

BACKENDS = ("libsql", "rqlite")
CASES = (Case("100 ready", 100), Case("10,000 ready", 10_000), Case("50,000 ready", 50_000))
PAYLOAD = '{"kind": "order.paid", "order": 4711, "note": "' + "x" * 80 + '"}'
SLICE_CYCLES = 20


class Figures:
    """What was measured of one queue, in seconds, and its requests."""

    def __init__(self) -> None:
        self.claims: list[float] = []
        self.cycles: list[float] = []
        self.bare: list[float] = []
        self.requests = 0


class Counter:
    """Counts the HTTP requests of a transport."""

    def __init__(self, backend: str, ours: Ours) -> None:
        self.count = 0
        executor: Any = ours.transport._executor
        holder, name = (executor._session, "post") if backend == "rqlite" else (client_of(executor), "_post")
        original = getattr(holder, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return original(*arguments, **options)

        setattr(holder, name, counted)


def client_of(executor: Any) -> Any:
    """Return the client that a libSQL transport has made for its first request."""
    assert executor._inner._own is not None
    return executor._inner._own


def two_bare_updates(ours: Ours) -> Callable[[], float]:
    """Return a function that times two updates of one row, through the client and the stream of a libSQL transport."""
    executor: Any = ours.transport._executor
    client, thread = client_of(executor), executor._running()
    table = f'"{ours.queue}_bare"'

    def send(*statements: str) -> None:
        thread.run(client.run([(text, {}) for text in statements], writes=True))

    send(
        f"drop table if exists {table}",
        f"create table {table} (id integer primary key, n integer)",
        f"insert into {table} values (1, 0)",
    )

    def timed() -> float:
        start = time.perf_counter()
        for _ in range(2):
            send(f"update {table} set n = n + 1 where id = 1 returning n")
        return time.perf_counter() - start

    return timed


def measure(ours: Ours, figures: Figures, counter: Counter, bare: Callable[[], float] | None) -> None:
    """Run one slice: cycles, and as many pairs of bare updates in between."""
    for _ in range(SLICE_CYCLES):
        before = counter.count
        start = time.perf_counter()
        lease = ours.claim()
        claimed = time.perf_counter()
        if lease is None:
            raise SystemExit(f"{ours.case.name}: nothing to claim, so there is nothing to measure")
        ours.ack(lease)
        figures.cycles.append(time.perf_counter() - start)
        figures.claims.append(claimed - start)
        figures.requests += counter.count - before
        ours.refill(lease)
        if bare is not None:
            figures.bare.append(bare())


def run(backend: str, rounds: int, scale: float, folder: Path, console: Console) -> None:
    """Fill all queues of a backend, measure them in turn, print the table."""
    cases = [scaled(case, scale) for case in CASES]
    console.print(f"{backend}: filling {len(cases)} queues", style="dim")
    systems = []
    for number, case in enumerate(cases):
        ours = Ours(backend, case, number, folder, PAYLOAD)
        ours.refill(ours.transport.claim("bench", 1))  # the client is made by the first request
        systems.append((ours, Counter(backend, ours), two_bare_updates(ours) if backend == "libsql" else None))
    for ours, counter, bare in systems:
        measure(ours, Figures(), counter, bare)
    figures = [Figures() for _ in systems]
    for _ in range(rounds):
        for number in random.sample(range(len(systems)), len(systems)):
            ours, counter, bare = systems[number]
            measure(ours, figures[number], counter, bare)
    show(backend, [case.name for case in cases], figures, console)
    for ours, _, _ in systems:
        ours.close()


def show(backend: str, names: list[str], figures: list[Figures], console: Console) -> None:
    """Print the figures of a backend, and the ratios."""
    made = Table(title=f"{backend}: one client, claim and ack", title_justify="left")
    made.add_column("queue")
    for heading in ("claim us", "cycle us", "cycles/s", "requests/cycle", "two bare updates us", "cycle / bare"):
        made.add_column(heading, justify="right")
    for name, each in zip(names, figures, strict=True):
        cycle = median(each.cycles)
        bare = median(each.bare) if each.bare else None
        made.add_row(
            name,
            f"{median(each.claims) * 1e6:,.0f}",
            f"{cycle * 1e6:,.0f}",
            f"{1 / cycle:,.0f}",
            f"{each.requests / len(each.cycles):.2f}",
            "-" if bare is None else f"{bare * 1e6:,.0f}",
            "-" if bare is None else f"{cycle / bare:.2f}",
        )
    console.print(made)
    claims, cycles = [median(each.claims) for each in figures], [median(each.cycles) for each in figures]
    console.print(f"largest / smallest: claim {max(claims) / min(claims):.2f}, cycle {max(cycles) / min(cycles):.2f}")
    console.print()
