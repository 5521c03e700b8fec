"""Measure claim and ack, and publish, of this version beside an older one and beside harel, on the same servers.

    git worktree add ../before COMMIT
    make bench-before BENCH_ARGS="--before ../before --backend sqlite --rounds 200"

Each side is a process with its own version of the package, and the same drivers. The sides take short turns, in a new
order in each round, on the same core. So changes of the machine's speed affect all sides alike. What counts is the
ratio of before to now: the median over all rounds, with the quartiles beside it. CPU time is that of the client only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from bench.side import Figures

BACKENDS = ("sqlite", "postgres", "redis")
ROOT = Path(__file__).resolve().parent.parent


class Side:
    """A process of `side.py`."""

    def __init__(self, checkout: Path, *arguments: object) -> None:
        self.slices: list[Figures] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.side", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(checkout.absolute() / "src")},
        )
        with suppress(AttributeError):  # only Linux can keep a process to a core
            os.sched_setaffinity(self._process.pid, {max(os.sched_getaffinity(0))})

    def answer(self) -> str:
        """Return the next answer of the process."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a side has ended with {self._process.wait()}")
        return line

    def slice(self) -> Figures:
        """Let it run one slice."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        figures: Figures = json.loads(self.answer())
        return figures

    def close(self) -> None:
        """Let it remove its queue and end."""
        self._process.communicate()


def run(backend: str, before: Path, options: argparse.Namespace, folder: str) -> dict[str, list[Figures]]:
    """Return the figures of all slices of each side."""
    shared = backend, folder, options.groups, options.cycles, *(["--tasks"] if options.tasks else [])
    sides = {"before": Side(before, "ours", *shared), "now": Side(ROOT, "ours", *shared)}
    if not options.tasks:
        sides["harel"] = Side(ROOT, "theirs", *shared)
    try:
        for side in sides.values():
            side.answer()
        for number in range(1 + options.rounds):
            for name in random.sample(sorted(sides), len(sides)):
                figures = sides[name].slice()
                if number:  # the first slice is the warm-up
                    sides[name].slices.append(figures)
    finally:
        for side in sides.values():
            side.close()
    return {name: side.slices for name, side in sides.items()}


def table(title: str, slices: dict[str, list[Figures]]) -> Table:
    """Return the medians of each side, and the ratios to now of what was measured in the same round."""
    made = Table(title=title, title_justify="left")
    made.add_column("")
    others = [side for side in slices if side != "now"]
    for heading in (*(f"{side} us" for side in slices), *(f"{side} / now" for side in others)):
        made.add_column(heading, justify="right")
    for what in slices["now"][0]:
        for number, clock in enumerate(("CPU", "wall")):
            times = {side: [each[what][number] for each in found] for side, found in slices.items()}
            cells = [f"{median(found) * 1e6:,.1f}" for found in times.values()]
            for side in others:
                ratios = [other / now for other, now in zip(times[side], times["now"], strict=True)]
                low, middle, high = quantiles(ratios)
                cells.append(f"{middle:.3f} ({low:.2f} to {high:.2f})")
            made.add_row(f"{what}, {clock}", *cells)
    return made


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the older version")
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; may be repeated")
    parser.add_argument("--tasks", action="store_true", help="the transports for asyncio, which harel does not have")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=60, help="of each slice")
    parser.add_argument("--groups", type=int, default=1000, help="at least as many as a slice has cycles")
    options = parser.parse_args()
    console = Console(width=None if os.isatty(1) else 120, highlight=False)
    for backend in options.backend or BACKENDS:
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
            slices = run(backend, options.before, options, folder)
        console.print(table(f"{backend}: one client{', asyncio' if options.tasks else ''}", slices))


if __name__ == "__main__":
    main()
