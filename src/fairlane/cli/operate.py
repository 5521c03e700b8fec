"""The commands with which operators end a lease, delete messages, and pause groups or the queue."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.input import utf8
from fairlane.cli.options import QUEUE, Group, Queue, Url, opened
from fairlane.cli.output import telling
from fairlane.cli.text import message_count, quoted_if_odd

NOT_LEASED = 1
NOTHING_CHANGED = 1
"""The exit code of a pause of what is paused already, and of a resume of what is not paused."""

Which = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", show_default=False, callback=utf8, help="Without it, the queue.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Delete them; without it, nothing is done.")]


def release(group: Group, url: Url = None, queue: Queue = QUEUE) -> None:
    """End the lease of a worker that is gone; exit code 1 if the group is not leased.

    The message is claimable at once, and the token of the lease is void.
    """
    with opened(url, queue) as transport:
        released = transport.release(group)
    if not released:
        typer.echo(f"The group {quoted_if_odd(group)} is not leased.", err=True)
        raise typer.Exit(NOT_LEASED)


def purge(group: Group, yes: Yes = False, url: Url = None, queue: Queue = QUEUE) -> None:
    """Delete the messages that wait in a group, and print how many there were. A leased message stays."""
    if not yes:
        raise ValueError(f"the messages that wait in {quoted_if_odd(group)} would be lost: add --yes to delete them")
    with opened(url, queue) as transport:
        purged = transport.purge(group)
    deleted = message_count(purged)
    with telling(f"{deleted} of {quoted_if_odd(group)} were deleted"):
        typer.echo(f"{deleted} deleted.")


def pause(group: Which = None, url: Url = None, queue: Queue = QUEUE) -> None:
    """Let workers pass a group, or the whole queue, over until `fairlane resume`; exit code 1 if it is paused already.

    Publishes go on. A lease that is under way may finish.
    """
    with opened(url, queue) as transport:
        done = transport.pause(group)
    if not done:
        typer.echo(f"{_named(group, queue)} is paused already.", err=True)
        raise typer.Exit(NOTHING_CHANGED)


def resume(group: Which = None, url: Url = None, queue: Queue = QUEUE) -> None:
    """End the pause of a group, or of the whole queue; exit code 1 if it is not paused.

    Without a group, groups that were paused by name stay paused.
    """
    with opened(url, queue) as transport:
        done = transport.resume(group)
    if not done:
        typer.echo(f"{_named(group, queue)} is not paused.", err=True)
        raise typer.Exit(NOTHING_CHANGED)


def _named(group: str | None, queue: str) -> str:
    return f"The queue {queue}" if group is None else f"The group {quoted_if_odd(group)}"
