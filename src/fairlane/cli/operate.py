"""The commands with which operators end a lease and delete messages."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.options import QUEUE, Group, Queue, Url, opened
from fairlane.cli.output import telling
from fairlane.cli.text import message_count, quoted_if_odd

NOT_LEASED = 1

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
