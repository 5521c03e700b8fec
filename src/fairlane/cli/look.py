"""The commands that show a queue and change nothing."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.text import Text

from fairlane.backends import MANIFESTS
from fairlane.capabilities import PROMISES
from fairlane.cli import tables
from fairlane.cli.options import QUEUE, AsJson, Group, Limit, Queue, Url, opened
from fairlane.cli.text import json_line, quoted_if_odd, record
from fairlane.contract import MAX_LIMIT, check_limit


def stats(url: Url = None, queue: Queue = QUEUE, as_json: AsJson = False) -> None:
    """Show the queue's figures.

    --json prints one object: queue, groups, ready, in_flight, parked, messages, oldest_seconds (null when empty),
    is_estimate (true if figures above 10,000 are estimates and oldest_seconds is a lower bound), paused (groups),
    is_paused (true if the whole queue is paused).
    """
    with opened(url, queue) as transport:
        row = transport.inspect.queue()
    if as_json:
        typer.echo(json_line(record(row)))
    else:
        tables.console().print(tables.queue_table(row))
        if not transport.capabilities.exact_counts:
            typer.echo(f"{transport.backend} gives only these figures, and they are approximate.", err=True)
        elif row.is_estimate:
            typer.echo("Figures above 10,000 are estimates; the oldest message may be older.", err=True)


def groups(url: Url = None, queue: Queue = QUEUE, limit: Limit = 100, as_json: AsJson = False) -> None:
    """Show groups in the order of the line, claimable groups first.

    --json prints one object per line: group_id, state (ready, in_flight, parked, paused), priority, depth,
    oldest_seconds, worker_id, attempts, ready_in_seconds, depth_is_capped (true if it has more messages than depth).
    """
    check_limit(limit)
    with opened(url, queue) as transport:
        rows = transport.inspect.groups(limit=min(limit + 1, MAX_LIMIT))
    shown = rows[:limit]
    if as_json:
        for row in shown:
            typer.echo(json_line(record(row)))
        return
    tables.console().print(tables.group_table(shown))
    if len(rows) > limit:
        typer.echo(f"There are more groups; --limit {min(limit * 10, MAX_LIMIT)} shows more.", err=True)


def peek(group: Group, url: Url = None, queue: Queue = QUEUE, limit: Limit = 100, as_json: AsJson = False) -> None:
    """Show the messages of a group, its head first. Nothing is claimed.

    --json prints one object per line: group_id, seq, state (in_flight, waiting), position, attempts, dedup_id,
    published_at, age_seconds, event.
    """
    with opened(url, queue) as transport:
        rows = transport.inspect.messages(group, limit=limit)
    if as_json:
        for row in rows:
            typer.echo(json_line(record(row)))
    elif rows:
        tables.console().print(tables.message_table(rows))
    else:
        typer.echo(f"The group {quoted_if_odd(group)} has no messages.")


def list_backends(as_json: AsJson = False) -> None:
    """List the backends, which of the 14 promises each one keeps, and which drivers are missing.

    --json prints one object per line: backend, schemes, installed, extra (null if the backend needs no driver), server,
    reach, durability, clock, differences (by the number of the promise), and the other fields of
    fairlane.capabilities.
    """
    if as_json:
        for name, manifest in MANIFESTS.items():
            schemes = [f"{scheme}://" for scheme in manifest.schemes]
            extra = f"fairlane[{name}]" if manifest.drivers else None
            known = {"backend": name, "schemes": schemes, "installed": manifest.installed, "extra": extra}
            typer.echo(json_line(known | asdict(manifest.capabilities)))
        return
    made = tables.table("backend", "URLs", "needs", "reach", "durable", "promises", fold=("needs",))
    for name, manifest in MANIFESTS.items():
        kept, urls = manifest.capabilities, "\n".join(f"{scheme}://" for scheme in manifest.schemes)
        but = ", ".join(map(str, sorted(kept.differences)))
        promises = f"all but {but}" if but else "all"
        tables.add_row(made, name, urls, kept.server, kept.reach, kept.durability, promises)
    console = tables.console()
    console.print(made)
    for name, manifest in MANIFESTS.items():
        for number, difference in sorted(manifest.capabilities.differences.items()):
            console.print(Text(f"{name}, promise {number} ({PROMISES[number][0]}): {difference}"))
    for name, manifest in MANIFESTS.items():
        if not manifest.installed:
            console.print(Text(f"{name}: pip install 'fairlane[{name}]' installs its driver"))
