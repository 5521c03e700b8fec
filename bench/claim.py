"""Measure claim and ack in queues of very different sizes, beside harel on the same servers.

    make bench-claim [BENCH_ARGS="--backend sqlite --rounds 20 --scale 0.1"]

In every round each queue of each system gets a short slice of cycles in turn. So changes of the machine's speed affect
all of them alike. Figures are medians over all cycles. A cycle is one claim and one ack. The message that is published
afterwards is not timed. On Postgres each slice has its own connections: a server process stays on the core on which it
started, and cores differ in speed.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from harel.spec.states import Event
from rich.console import Console
from rich.table import Table

from bench import alone
from bench.cases import CASES, scaled
from bench.ours import Ours
from bench.theirs import THEIRS, Theirs

BACKENDS = ("sqlite", "postgres", "redis")
SLICE_CYCLES = 60
WARM_CYCLES = 12
"""Cycles without timing on fresh connections: drivers prepare a statement when it is used for the sixth time."""

SLICE_SECONDS = 0.6
"""A slice ends after so many cycles or seconds, whichever comes first: a slow system must not delay the others."""


class Figures:
    """What was measured of one queue, in seconds."""

    def __init__(self) -> None:
        self.claims: list[float] = []
        self.cycles: list[float] = []

    @property
    def claim(self) -> float:
        return median(self.claims)

    @property
    def cycle(self) -> float:
        return median(self.cycles)


def measure(system: Ours | Theirs, figures: Figures) -> None:
    """Run one slice."""
    if system.renew():
        cycles(system, Figures(), WARM_CYCLES)
    cycles(system, figures, SLICE_CYCLES)


def cycles(system: Ours | Theirs, figures: Figures, count: int) -> None:
    """Run some cycles."""
    end = time.perf_counter() + SLICE_SECONDS
    for _ in range(count):
        start = time.perf_counter()
        lease = system.claim()
        claimed = time.perf_counter()
        if lease is None:
            raise SystemExit(f"{system.name}, {system.case.name}: nothing to claim, so there is nothing to measure")
        system.ack(lease)
        acked = time.perf_counter()
        system.refill(lease)
        figures.claims.append(claimed - start)
        figures.cycles.append(acked - start)
        if acked > end:
            break


def pinger(ours: Ours) -> Callable[[], float]:
    """Return a function that times two PINGs through the client of a Redis transport."""
    connection: Any = ours.transport._executor._line.client  # type: ignore[attr-defined]

    def two_pings() -> float:
        start = time.perf_counter()
        connection.ping()
        connection.ping()
        return time.perf_counter() - start

    return two_pings


def run(backend: str, rounds: int, scale: float, folder: Path, console: Console) -> None:
    """Fill all queues of a backend, measure them in turn, print the table."""
    event = Event(kind="order.paid", data={"order": 4711, "lines": [{"sku": "A-1", "n": 2}], "note": "x" * 80})
    cases = [scaled(case, scale) for case in CASES]
    console.print(f"{backend}: filling {2 * len(cases)} queues", style="dim")
    ours = [Ours(backend, case, n, folder, event.model_dump_json()) for n, case in enumerate(cases)]
    theirs = [THEIRS[backend](case, n, folder, event) for n, case in enumerate(cases)]
    systems: list[Ours | Theirs] = [*ours, *theirs]
    figures = {id(system): Figures() for system in systems}
    pings: list[float] = []
    ping = pinger(ours[0]) if backend == "redis" else None
    for system in systems:
        measure(system, Figures())  # plans, caches and connections get warm
    for _ in range(rounds):
        for system in random.sample(systems, len(systems)):
            measure(system, figures[id(system)])
            if ping:
                pings += [ping() for _ in range(SLICE_CYCLES // 3)]
    pairs = [(figures[id(a)], figures[id(b)]) for a, b in zip(ours, theirs, strict=True)]
    console.print(table(backend, [case.name for case in cases], pairs))
    claims, cycles = [pair[0].claim for pair in pairs], [pair[0].cycle for pair in pairs]
    console.print(f"largest / smallest: claim {max(claims) / min(claims):.2f}, cycle {max(cycles) / min(cycles):.2f}")
    if pings:
        base = figures[id(ours[0])].cycle
        console.print(f"claim+ack / two PINGs through the same client: {base / median(pings):.2f}")
    console.print()
    for system in systems:
        system.close()


def table(backend: str, names: list[str], pairs: list[tuple[Figures, Figures]]) -> Table:
    """Return the figures of a backend, side by side; `x` is how many times as fast as harel."""
    made = Table(title=f"{backend}: one client, claim and ack", title_justify="left")
    made.add_column("queue")
    for heading in ("claim us", "cycles/s", "harel claim us", "harel cycles/s", "claim x", "rate x"):
        made.add_column(heading, justify="right")
    for name, (ours, theirs) in zip(names, pairs, strict=True):
        made.add_row(
            name,
            f"{ours.claim * 1e6:,.0f}",
            f"{1 / ours.cycle:,.0f}",
            f"{theirs.claim * 1e6:,.0f}",
            f"{1 / theirs.cycle:,.0f}",
            f"{theirs.claim / ours.claim:.2f}",
            f"{theirs.cycle / ours.cycle:.2f}",
        )
    return made


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--backend",
        action="append",
        choices=(*BACKENDS, *alone.BACKENDS),
        help=f"only this one; may be repeated. {' and '.join(alone.BACKENDS)} only when asked for",
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--scale", type=float, default=1.0, help="divide the large queues, for a quick look")
    arguments = parser.parse_args()
    console = Console(width=None if os.isatty(1) else 110, highlight=False)
    for backend in arguments.backend or BACKENDS:
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
            measured = alone.run if backend in alone.BACKENDS else run
            measured(backend, arguments.rounds, arguments.scale, Path(folder), console)


if __name__ == "__main__":
    main()
