"""The commands for the owner of the schema."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane import migrate as migrations
from fairlane.cli.options import QUEUE, STARTUP_TIMEOUT, AsJson, Queue, Url, head_start_option
from fairlane.cli.output import telling
from fairlane.cli.text import json_line, message_count
from fairlane.environ import resolve_url
from fairlane.errors import QueueDamaged, SchemaNotReady
from fairlane.migrate.queues import contents

NOT_READY = 1


def _checked_wait(seconds: float) -> float:
    if not 0 <= seconds <= 3600:  # refuses NaN too
        raise typer.BadParameter(f"{seconds} is not in the range 0<=x<=3600.")
    return seconds


Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", help="Time to wait for a server that is not up yet.", callback=_checked_wait
    ),
]
Revision = Annotated[
    str, typer.Argument(metavar="REVISION", help="head, a four-digit id, or base, which removes the queue.")
]
OwnerRole = Annotated[
    str | None, typer.Option("--owner-role", metavar="ROLE", help="Postgres: becomes the owner of everything.")
]
AppRole = Annotated[
    str | None, typer.Option("--app-role", metavar="ROLE", help="Postgres: may execute the functions; none: no role.")
]
ReaderRole = Annotated[
    str | None, typer.Option("--reader-role", metavar="ROLE", help="Postgres: may read the views; none: no role.")
]
HeadStart = Annotated[str | None, head_start_option("1")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove a queue even if it holds messages.")]
Sql = Annotated[bool, typer.Option("--sql", help="Print a script that a DBA can apply by hand; change nothing.")]


def migrate(
    revision: Revision = "head",
    url: Url = None,
    queue: Queue = QUEUE,
    owner_role: OwnerRole = None,
    app_role: AppRole = None,
    reader_role: ReaderRole = None,
    head_start: HeadStart = None,
    yes: Yes = False,
    wait: Wait = STARTUP_TIMEOUT,
    sql: Sql = False,
) -> None:
    """Create a queue's schema, or migrate it to a revision."""
    chosen = resolve_url(url)
    options = {
        "owner_role": owner_role,
        "app_role": app_role,
        "reader_role": reader_role,
        "head_start": head_start,
    }
    if sql:
        typer.echo(migrations.script(chosen, queue=queue, revision=revision, **options), nl=False)
        return
    was = migrations.status(chosen, queue=queue, startup_timeout=wait)
    before = was.found
    if revision == "base" and before is not None and not yes:
        _refuse_to_lose_messages(chosen, queue)
    migrations.migrate(chosen, queue=queue, revision=revision, startup_timeout=wait, **options)
    now = migrations.status(chosen, queue=queue)
    after = now.found
    repaired = was.fault and after is not None and not now.fault
    outcome = f"The queue {queue} was damaged and is repaired." if repaired else _outcome(queue, before, after)
    with telling(outcome):
        typer.echo(outcome)
    if before == after is not None and (app_role or reader_role):
        typer.echo("It has the roles that you named.")
    if before == after is not None and head_start:
        typer.echo("It has the head start that you named.")
    if before == after is not None and owner_role:
        typer.echo("--owner-role counts only for a new queue; this queue has the owner that it had.", err=True)


def _refuse_to_lose_messages(url: str, queue: str) -> None:
    held = contents(url, queue=queue)
    if held is None or held.messages:
        lost = "what cannot be counted" if held is None else message_count(held.messages)
        raise ValueError(f"the queue {queue} holds {lost}, which would be lost: add --yes to remove the queue")


def _outcome(queue: str, before: str | None, after: str | None) -> str:
    if before == after:
        return f"The queue {queue} is {_at(after)}; there was nothing to do."
    if after is None:
        return f"The queue {queue} is removed."
    return f"The queue {queue} is now {_at(after)}" + (f"; it was {_at(before)}." if before else ".")


def _at(revision: str | None) -> str:
    return "not there" if revision is None else f"at revision {revision}"


def status(url: Url = None, queue: Queue = QUEUE, wait: Wait = STARTUP_TIMEOUT, as_json: AsJson = False) -> None:
    """Show whether a queue's schema fits this client: exit code 0 if it does, 1 if not.

    --json prints one object: queue, found (null if the queue is not there), serves, needed, ready, fault (null
    unless the stored data are damaged).
    """
    found = migrations.status(resolve_url(url), queue=queue, startup_timeout=wait)
    if as_json:
        fields = {name: getattr(found, name) for name in ("queue", "found", "serves", "needed", "ready", "fault")}
        typer.echo(json_line(fields))
    elif found.ready:
        typer.echo(f"Ready: queue {queue!r} is at revision {found.found}, this client needs {found.needed}.")
    elif found.fault:
        typer.echo(f"Not ready: {QueueDamaged(queue, found.fault)}.")
    else:
        typer.echo(f"Not ready: {SchemaNotReady(queue, found.found, found.needed, found.serves)}.")
    if not found.ready:
        raise typer.Exit(NOT_READY)
