"""The commands for the owner of a queue: show its settings, change them, and remove the queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from fairlane import migrate as migrations
from fairlane.backends import manifest_of
from fairlane.cli import tables
from fairlane.cli.options import QUEUE, STARTUP_TIMEOUT, AsJson, Queue, Url, head_start_option
from fairlane.cli.output import telling
from fairlane.cli.text import NONE, json_line, message_count, record
from fairlane.environ import resolve_url
from fairlane.migrate.queues import contents
from fairlane.migrate.stored_settings import SETTINGS, QueueSettings, Setting
from fairlane.model import QueueStatus
from fairlane.urls import scheme_of

app = typer.Typer(
    name="queue", help="Show and change the settings of a queue.", no_args_is_help=False, rich_markup_mode=None
)

HeadStart = Annotated[str | None, head_start_option(None)]
OwnerRole = Annotated[str | None, typer.Option("--owner-role", metavar="ROLE", help="Postgres: the role to set first.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove it; without it, nothing is done.")]


@app.command("show", short_help="Show the settings of a queue.")
def show(url: Url = None, queue: Queue = QUEUE, as_json: AsJson = False) -> None:
    """Show the settings of a queue, which a DBA decides.

    --json prints one object: queue, revision, serves, head_start (seconds, or "always"), owner_role, app_role,
    reader_role. What the backend or the queue does not have is null.
    """
    chosen = resolve_url(url)
    found = migrations.queue_settings(chosen, queue=queue, startup_timeout=STARTUP_TIMEOUT)
    if as_json:
        typer.echo(json_line(record(found)))
        return
    made = tables.table("setting", "value")
    for name in ("queue", "revision", "serves"):
        tables.add_row(made, name, getattr(found, name))
    for setting in SETTINGS:
        if _has(chosen, setting):
            tables.add_row(made, setting.name, _value(found, setting))
    tables.console().print(made)


@app.command("set", short_help="Change settings of a queue.")
def change(url: Url = None, queue: Queue = QUEUE, head_start: HeadStart = None, owner_role: OwnerRole = None) -> None:
    """Change settings of an existing queue, all of them or none, and print what they were.

    Applications may go on working meanwhile. On Postgres this needs the rights of the owner; --owner-role sets that
    role first.
    """
    before, after = migrations.configure(
        resolve_url(url), queue=queue, startup_timeout=STARTUP_TIMEOUT, owner_role=owner_role, head_start=head_start
    )
    lines = [_changed(queue, setting, before, after) for setting in _given(head_start=head_start)]
    with telling(" ".join(lines)):
        for line in lines:
            typer.echo(line)


def _given(**options: str | None) -> Iterator[Setting]:
    """Yield the settings whose options were given."""
    yield from (setting for setting in SETTINGS if options.get(setting.name) is not None)


def _changed(queue: str, setting: Setting, before: QueueSettings, after: QueueSettings) -> str:
    was, now = _value(before, setting), _value(after, setting)
    return f"{setting.name} of the queue {queue} is now {now}; it was {was}."


def drop(url: Url = None, queue: Queue = QUEUE, yes: Yes = False, owner_role: OwnerRole = None) -> None:
    """Remove a queue with all its messages. Without --yes, say what it holds, and do nothing."""
    chosen = resolve_url(url)
    if not yes:
        _refuse_to_drop(chosen, queue)
    migrations.drop(chosen, queue=queue, startup_timeout=STARTUP_TIMEOUT, owner_role=owner_role)
    removed = f"The queue {queue} is removed."
    with telling(removed):
        typer.echo(removed)


def _refuse_to_drop(url: str, queue: str) -> None:
    held = contents(url, queue=queue, startup_timeout=STARTUP_TIMEOUT)
    if held is None:
        raise ValueError(
            f"the queue {queue} is incomplete, so what it holds cannot be counted: add --yes to remove what is left"
        )
    raise ValueError(f"the queue {queue} holds {_held(held)}, which would be lost: add --yes to remove the queue")


def _held(held: QueueStatus) -> str:
    """Return what a queue holds, in words."""
    about = "about " if held.is_estimate else ""
    text = about + message_count(held.messages)
    if held.groups is not None:
        text += f" in {about}{held.groups:,} {'group' if held.groups == 1 else 'groups'}"
    return f"{text} ({about}{held.in_flight:,} leased)"


def _has(url: str, setting: Setting) -> bool:
    """Return whether the backend has a setting."""
    manifest = manifest_of(scheme_of(url))
    return setting.name in manifest.choices and (
        setting.capability is None or bool(getattr(manifest.capabilities, setting.capability))
    )


def _value(found: QueueSettings, setting: Setting) -> str:
    """Return the value of a setting for people."""
    value = getattr(found, setting.name)
    if value is None:
        return NONE
    return f"{value:.6f}".rstrip("0").rstrip(".") + f" {setting.unit}" if isinstance(value, float) else str(value)
