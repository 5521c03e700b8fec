"""Run the demo on every backend, and print the time and the messages per second of each.

    make bench-demo                                  the servers that the tests start unless told otherwise
    make bench-demo SERVERS=postgres,sqld,mongoeco   these; names are those of `make servers-list`
    python bench/demo.py --only sqlite,postgres      the servers that FAIRLANE_TEST_<BACKEND>_URL name

A backend without a server is named and left out.

Each run is `fairlane demo --json` in its own process, with 4 workers, one of which is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

NAMES = {
    "memory": None,
    "sqlite": None,
    "postgres": "FAIRLANE_TEST_POSTGRES_URL",
    "redis": "FAIRLANE_TEST_REDIS_URL",
    "redis-cluster": "FAIRLANE_TEST_REDIS_CLUSTER_URL",
    "libsql": "FAIRLANE_TEST_LIBSQL_URL",
    "rqlite": "FAIRLANE_TEST_RQLITE_URL",
    "mongo": "FAIRLANE_TEST_MONGO_URL",
    "sqs": "FAIRLANE_TEST_SQS_URL",
}
"""The backends, and the variable with the URL of each one's server."""

EMULATED = {"mongo": 300}
"""The number of events where the test server is an emulator that gets slower the more it holds."""

COLUMNS = ("backend", "events", "published/s", "handled/s", "recovered after", "in all", "proofs")
LONGEST = 600.0


@dataclass(frozen=True)
class Outcome:
    """One run: its report, or the reason why there is none."""

    backend: str
    report: dict[str, Any] | None
    error: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        if self.report is None:
            return (self.backend, "-", "-", "-", "-", "-", self.error)
        held = [proof["name"] for proof in self.report["proofs"] if proof["holds"]]
        failed = [f"{proof['name']} ({proof['detail']})" for proof in self.report["proofs"] if not proof["holds"]]
        recovery = self.report["recovery_seconds"]
        return (
            self.backend,
            f"{self.report['events']:,}",
            f"{self.report['publish_rate']:,.0f}",
            f"{self.report['handle_rate']:,.0f}",
            "-" if recovery is None else f"{recovery:.1f} s",
            f"{self.report['total_seconds']:.1f} s",
            f"FAILED: {', '.join(failed)}" if failed else f"all {len(held)} hold",
        )


def main() -> int:
    arguments = parse()
    chosen = arguments.only.split(",") if arguments.only else list(NAMES)
    if unknown := sorted(set(chosen) - set(NAMES)):
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 120)
    table = Table()
    for column in COLUMNS:
        table.add_column(
            column, justify="left" if column in ("backend", "proofs") else "right", no_wrap=column != "proofs"
        )
    good = True
    for name in chosen:
        variable = NAMES[name]
        if variable is not None and not os.environ.get(variable):
            print(f"{name}: {variable} is not set, so it is left out", file=sys.stderr)
            continue
        print(f"{name} …", file=sys.stderr)
        outcome = run(name, arguments.events or EMULATED.get(name))
        good = good and outcome.report is not None and outcome.report["holds"]
        table.add_row(*outcome.cells)
    console.print(table)
    return 0 if good else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--events", type=int, metavar="N", help="only so many lines of the log")
    return parser.parse_args()


def run(name: str, events: int | None) -> Outcome:
    variable = NAMES[name]
    command = [sys.executable, "-m", "fairlane.cli", "demo", "--json"]
    if variable is not None:
        command += ["--url", os.environ[variable]]
    elif name == "memory":
        command += ["--url", "memory://"]
    if events is not None:
        command += ["--events", str(events)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return Outcome(name, None, f"not done in {LONGEST:g} s")
    if not done.stdout:
        return Outcome(name, None, done.stderr.strip())
    return Outcome(name, json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
