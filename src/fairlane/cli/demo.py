"""`fairlane demo`: run the demo and show its course."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from fairlane.backends import MANIFESTS
from fairlane.cli import tables
from fairlane.cli.options import AsJson
from fairlane.cli.text import json_line, record
from fairlane.demo import Casualty, Plan, Report, run_demo
from fairlane.model import GroupStatus, QueueStatus

NOT_PROVEN = 1
SHOWN_GROUPS = 4
MOMENTS = {
    "before": "Before: everything is published, and no worker has started",
    "middle": "In the middle: a worker was just killed, and the others continue",
    "after": "After",
}


def demo(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="The database; by default an SQLite file in a temporary folder. FAIRLANE_URL is ignored here.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="NAME", help="A queue to make.", show_default="a new name")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", metavar="N", help="Worker processes, at least 2.")] = 4,
    visibility: Annotated[
        float, typer.Option("--visibility", "-v", metavar="SECONDS", help="Duration of each lease.")
    ] = 2.5,
    events: Annotated[
        int | None, typer.Option("--events", "-n", metavar="N", help="Number of lines to handle.", show_default="all")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Do not remove the queue and the files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Handle a real package manager's log with several workers, kill one of them, and prove the result.

    Each package is a group, and each status line of examples/dpkg.log is an event. The queue is made for the demo and
    removed in the end. Exit code 1 if a proof fails, 2 if the demo could not be finished.

    --json prints one object: backend, queue, kind, workers, events, packages, publish_seconds, publish_rate,
    handle_seconds, handle_rate, recovery_seconds, total_seconds, handled (by worker), casualty, views (before,
    middle and after: queue and groups), proofs (name, holds, detail), holds.
    """
    plan = Plan(url, queue, workers, visibility, events, keep)
    if as_json:
        report = run_demo(plan, _Silent())
        typer.echo(json_line(summary(report)))
    else:
        with _screen() as screen:
            report = run_demo(plan, screen)
            screen.ends(report)
    if not report.holds:
        raise typer.Exit(NOT_PROVEN)


def summary(report: Report) -> dict[str, Any]:
    """Return a report as the JSON that `--json` prints."""
    fields = record(report) | {
        "publish_rate": report.publish_rate,
        "handle_rate": report.handle_rate,
        "holds": report.holds,
        "views": {
            moment: {"queue": record(queue), "groups": [record(row) for row in groups]}
            for moment, (queue, groups) in report.views.items()
        },
    }
    del fields["handled_until_then"]
    return fields


def _tell_what_is_left(queue: str) -> None:
    typer.echo(f"The queue {queue} is left: fairlane migrate base --yes --queue {queue} removes it.", err=True)


class _Silent:
    """Shows nothing."""

    def begins(self, report: Report, where: str) -> None: ...
    def progress(self, stage: str, done: int, total: int) -> None: ...
    def looks(self, moment: str, queue: QueueStatus, groups: Sequence[GroupStatus]) -> None: ...
    def killed(self, casualty: Casualty) -> None: ...

    def leaves(self, queue: str) -> None:
        _tell_what_is_left(queue)


class _Screen:
    """Shows the demo in a terminal. Without a terminal there is no progress bar."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console = console
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))

    def begins(self, report: Report, where: str) -> None:
        self._say(f"A package manager's log, handled through a queue on {report.backend} ({where})", "bold")
        kind = "processes" if report.kind == "processes" else "threads, since this queue lives in one process"
        self._say(
            f"{report.events:,} events of {report.packages:,} packages; a package is a group; "
            f"{report.workers} worker {kind}."
        )
        if not MANIFESTS[report.backend].capabilities.exact_counts:
            self._say(f"The figures of {report.backend} are approximate, and it does not show groups or leases.")
        self._say("")

    def progress(self, stage: str, done: int, total: int) -> None:
        task = self._tasks.get(stage)
        if task is None:
            task = self._tasks[stage] = self._bar.add_task(f"{stage:<10}", total=total)
        self._bar.update(task, completed=done)
        if self._bar.disable and done == total:
            self._say(f"{stage}: {done:,} of {total:,}\n")

    def looks(self, moment: str, queue: QueueStatus, groups: Sequence[GroupStatus]) -> None:
        self._say(MOMENTS[moment], "bold")
        self._console.print(tables.queue_table(queue))
        if moment == "middle":
            groups = [row for row in groups if row.state == "in_flight"]
        if groups:
            self._console.print()
            self._console.print(tables.group_table(groups[:SHOWN_GROUPS]))
            if len(groups) > SHOWN_GROUPS:
                self._say(f"… and {len(groups) - SHOWN_GROUPS:,} more groups")
        self._console.print()

    def killed(self, casualty: Casualty) -> None:
        behind = "" if casualty.waiting is None else f"; {casualty.waiting:,} more wait behind it"
        self._say(
            f"Killed {casualty.worker} ({casualty.end}) after {casualty.handled:,} events, in the middle of message "
            f"{casualty.seq} of {casualty.package}{behind}\n",
            "yellow",
        )

    def leaves(self, queue: str) -> None:
        _tell_what_is_left(queue)

    def ends(self, report: Report) -> None:
        """Show the figures and the proofs."""
        self._bar.stop()
        shares = ", ".join(f"{worker} {count:,}" for worker, count in sorted(report.handled.items()))
        self._say(
            f"published  {report.events:,} events in {report.publish_seconds:.1f} s, {report.publish_rate:,.0f}/s"
        )
        behind = report.events - report.handled_until_then
        self._say(
            f"handled    {report.handled_until_then:,} events in {report.handle_seconds:.1f} s, "
            f"{report.handle_rate:,.0f}/s" + (f"; {behind:,} more waited for the killed worker's lease" * (behind > 0))
        )
        self._say(f"by worker  {shares}")
        if report.recovery_seconds is not None:
            self._say(f"recovered  the killed worker's message after {report.recovery_seconds:.1f} s")
        self._say(f"in all     {report.total_seconds:.1f} s\n")
        self._say("Proofs", "bold")
        for proof in report.proofs:
            verdict = Text("holds" if proof.holds else "FAILS", style="green" if proof.holds else "bold red")
            self._console.print(Text.assemble(verdict, f"  {proof.name:<12} {proof.detail}"))


@contextmanager
def _screen() -> Iterator[_Screen]:
    console = tables.console()
    with tables.progress(console, keep=True) as bar:
        yield _Screen(console, bar)
