"""The command that publishes one event, or a file of events."""

from __future__ import annotations

import codecs
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from fairlane import contract
from fairlane.cli import tables
from fairlane.cli.input import decoded, parse_json, read_stdin, utf8
from fairlane.cli.options import QUEUE, Queue, Url, opened
from fairlane.cli.output import telling
from fairlane.codec import JsonCodec, encode_event
from fairlane.errors import FairlaneError
from fairlane.transport import Transport

_CODEC = JsonCodec()
_IN_MEMORY = 16 * 1024 * 1024
_KEYS = {"group", "event", "priority", "dedup_id"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file of events."""

    group: str
    event: Any
    priority: int
    dedup_id: str | None


def publish(
    group: Annotated[str | None, typer.Argument(metavar="GROUP", show_default=False, callback=utf8)] = None,
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT", help="JSON; - reads it from stdin.", show_default=False, callback=utf8),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="JSON lines; - is stdin."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", "-p", metavar="0-4", help="Priority of the group if it is empty.", show_default="0"),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            "--dedup-id", metavar="ID", help="Add nothing if the queue has a message with this id.", callback=utf8
        ),
    ] = None,
    url: Url = None,
    queue: Queue = QUEUE,
) -> None:
    """Publish an event and print its seq, or publish every line of a file in order.

    A line of a file is {"group": "g", "event": …}, and may have "priority" and "dedup_id". The whole file or stdin is
    read and checked before the first line is published. A JSON string needs its quotes: fairlane publish g '"text"'.
    """
    if file is None:
        if group is None or event is None:
            raise ValueError("name a group and an event, or a --file of events")
        parsed = parse_json(read_stdin() if event == "-" else event, "the event")
        with opened(url, queue) as transport:
            seq = transport.publish(group, parsed, priority or 0, dedup_id=dedup_id)
            with telling(f"the event was published as message {seq}"):
                typer.echo(seq)
    else:
        if group is not None or priority is not None or dedup_id is not None:
            raise ValueError("with --file each line has its own group, priority and dedup_id: leave out the others")
        _publish_file(file, url, queue)


def _publish_file(file: str, url: str | None, queue: str) -> None:
    name = "stdin" if file == "-" else file
    with opened(url, queue) as transport, _stream(file) as stream:
        start = stream.tell()
        total = sum(1 for _ in _lines(stream, name))
        stream.seek(start)
        started = time.monotonic()
        # only lines that were checked, since the file may grow in the meantime
        count, groups = _publish_lines(transport, islice(_lines(stream, name), total), name, total)
    seconds = time.monotonic() - started
    rate = f", {count / seconds:,.0f}/s" if count and seconds else ""
    with telling(f"all {count:,} events were published"):
        typer.echo(f"Published {count:,} events into {len(groups):,} groups in {seconds:.1f} s{rate}.")


@contextmanager
def _stream(file: str) -> Iterator[IO[bytes]]:
    """Open a file so that it can be read twice. The content of a pipe is copied, to a temporary file if it is large."""
    if file != "-":
        with Path(file).open("rb") as stream:
            if stream.seekable():
                yield stream
            else:
                with _copied(stream) as copy:
                    yield copy
    elif sys.stdin.buffer.seekable():
        yield sys.stdin.buffer
    else:
        with _copied(sys.stdin.buffer) as copy:
            yield copy


@contextmanager
def _copied(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
        try:
            shutil.copyfileobj(stream, copy)
        except OSError as error:
            reason = f"{error.strerror}, for a copy of what the pipe says"
            raise OSError(error.errno, reason, tempfile.gettempdir()) from error
        copy.seek(0)
        yield copy


def _lines(stream: Iterable[bytes], name: str) -> Iterator[tuple[int, Line]]:
    for number, raw in enumerate(stream, 1):
        if raw.removeprefix(codecs.BOM_UTF8).strip():
            try:
                yield number, _line(decoded(raw, "the line"))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{name} line {number}: {error}") from None


def _line(text: str) -> Line:
    fields = parse_json(text, "the line")
    if not isinstance(fields, dict) or not {"group", "event"} <= set(fields):
        raise ValueError('a line is an object with "group" and "event"')
    if unknown := sorted(set(fields) - _KEYS):
        raise ValueError(f"unknown key {json.dumps(unknown[0])}; known are group, event, priority, dedup_id")
    encode_event(_CODEC, fields["event"])
    return Line(
        contract.check_id("group", fields["group"]),
        fields["event"],
        contract.check_priority("priority", fields.get("priority", 0)),
        contract.check_dedup_id(fields.get("dedup_id")),
    )


def _publish_lines(
    transport: Transport[Any], lines: Iterator[tuple[int, Line]], name: str, total: int
) -> tuple[int, set[str]]:
    groups: set[str] = set()
    count = 0
    with tables.progress() as bar:
        task = bar.add_task("publishing", total=total)
        try:
            for number, line in lines:
                try:
                    transport.publish(line.group, line.event, line.priority, dedup_id=line.dedup_id)
                except FairlaneError as error:
                    raise FairlaneError(f"{name} line {number}: {error}") from error
                count += 1
                groups.add(line.group)
                bar.update(task, completed=count)
        except (FairlaneError, ValueError, KeyboardInterrupt):
            bar.stop()
            typer.echo(f"Published only the first {count:,} events of {name}.", err=True)
            raise
    return count, groups
