"""The commands that claim a message by hand, and ack, nack or extend its lease."""

from __future__ import annotations

import json
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.cli.input import decoded, read_stdin, utf8
from fairlane.cli.options import QUEUE, Queue, Url, opened
from fairlane.cli.output import Unprinted, telling
from fairlane.cli.text import json_line, record
from fairlane.errors import EventDecodingError, FairlaneError
from fairlane.model import Lease
from fairlane.transport import Transport

NOTHING = 1

Worker = Annotated[
    str | None,
    typer.Option("--worker", "-w", metavar="ID", help="Worker id; by default this host and process.", callback=utf8),
]
Visibility = Annotated[
    float,
    typer.Option("--visibility", "-v", metavar="SECONDS", help="Duration of the lease, at most 12 h."),
]
Floor = Annotated[
    int, typer.Option("--min-priority", "-p", metavar="0-4", help="Only groups of this priority or more.")
]
LeaseFile = Annotated[
    str | None, typer.Option("--lease", metavar="FILE", help="The JSON that claim printed; - reads it from stdin.")
]
GroupArgument = Annotated[str | None, typer.Argument(metavar="GROUP", show_default=False, callback=utf8)]
TokenArgument = Annotated[str | None, typer.Argument(metavar="TOKEN", show_default=False)]
SeqArgument = Annotated[int | None, typer.Argument(metavar="SEQ", show_default=False)]


def claim(
    url: Url = None,
    queue: Queue = QUEUE,
    worker: Worker = None,
    visibility: Visibility = 60.0,
    min_priority: Floor = 0,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="Time to wait if nothing is deliverable, at most 12 h.")
    ] = 0.0,
) -> None:
    """Lease the next message and print the lease; exit code 1 if nothing is deliverable.

    Prints one JSON object: group_id, event, seq, token, attempts, published_at, expires_at. Keep it for ack, nack
    and extend. Without the token, the message becomes claimable only when its lease expires.
    """
    with opened(url, queue) as transport:
        try:
            lease = transport.claim(_me() if worker is None else worker, visibility, min_priority, wait=wait)
        except EventDecodingError as error:
            _hand_over(error.lease, transport)  # the lease holds, and the caller needs its token to ack or nack it
            raise
        if lease is not None:
            _hand_over(lease, transport)
    if lease is None:
        typer.echo("Nothing is deliverable.", err=True)
        raise typer.Exit(NOTHING)


def ack(
    group: GroupArgument = None,
    token: TokenArgument = None,
    seq: SeqArgument = None,
    lease: LeaseFile = None,
    url: Url = None,
    queue: Queue = QUEUE,
) -> None:
    """Delete a claimed message, which is finished: fairlane claim | tee lease; fairlane ack --lease lease."""
    held = _lease(lease, group, token, seq)
    with opened(url, queue) as transport:
        transport.ack(held)


def nack(
    group: GroupArgument = None,
    token: TokenArgument = None,
    seq: SeqArgument = None,
    lease: LeaseFile = None,
    delay: Annotated[
        float, typer.Option("--delay", "-d", metavar="SECONDS", help="Time for which the whole group is parked.")
    ] = 0.0,
    url: Url = None,
    queue: Queue = QUEUE,
) -> None:
    """Give a claimed message back to the head of its group."""
    held = _lease(lease, group, token, seq)
    with opened(url, queue) as transport:
        transport.nack(held, delay)


def extend(
    group: GroupArgument = None,
    token: TokenArgument = None,
    seq: SeqArgument = None,
    lease: LeaseFile = None,
    visibility: Visibility = 60.0,
    url: Url = None,
    queue: Queue = QUEUE,
) -> None:
    """Let a lease end --visibility seconds from now, and print the new lease as claim does."""
    held = _lease(lease, group, token, seq)
    with opened(url, queue) as transport:
        longer = transport.extend(held, visibility)
        with telling(f"the lease was extended until {longer.expires_at:%H:%M:%S} UTC"):
            _print(longer)


def _me() -> str:
    return f"cli@{socket.gethostname()}:{os.getpid()}"


def _hand_over(lease: Lease, transport: Transport[Any]) -> None:
    """Print a lease. If that fails, nack the message: otherwise its group would be blocked until the lease expires."""
    try:
        _print(lease)
        sys.stdout.flush()
    except OSError as error:
        try:
            transport.nack(lease)
        except FairlaneError:
            raise Unprinted(error, "the message that was claimed comes back when its lease runs out") from error
        raise Unprinted(error, "the message that was claimed was given back") from error


def _print(lease: Lease) -> None:
    typer.echo(json_line(record(lease)))


def _lease(file: str | None, group: str | None, token: str | None, seq: int | None) -> Lease:
    if file is not None:
        if group is not None:
            raise ValueError("name the lease only once: by --lease FILE, or by GROUP TOKEN SEQ")
        text = read_stdin() if file == "-" else decoded(Path(file).read_bytes(), file)
        return _parse(text, "stdin" if file == "-" else file)
    if group is None or token is None or seq is None:
        raise ValueError("name the lease: --lease FILE with the output of claim, or GROUP TOKEN SEQ")
    return _made(group, token, seq, {})


def _parse(text: str, source: str) -> Lease:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not the output of claim: {error}") from None
    wanted = {"group_id": str, "token": str, "seq": int}
    if not isinstance(fields, dict) or not all(type(fields.get(name)) is type_ for name, type_ in wanted.items()):
        raise ValueError(f"{source} is not the output of claim: group_id, token and seq are needed")
    return _made(fields["group_id"], fields["token"], fields["seq"], fields)


def _made(group: str, token: str, seq: int, fields: dict[str, Any]) -> Lease:
    """Make a lease from its known fields. Only group, token and seq are needed; the others have default values."""
    return Lease(
        group_id=group,
        event=fields.get("event"),
        seq=seq,
        token=token,
        attempts=fields["attempts"] if isinstance(fields.get("attempts"), int) else 1,
        published_at=_instant(fields.get("published_at")),
        expires_at=_instant(fields.get("expires_at")),
    )


def _instant(text: object) -> datetime:
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.now(UTC)
    return when if when.tzinfo else when.replace(tzinfo=UTC)
