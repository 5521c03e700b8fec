"""Options that several commands share, and how they open a queue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlane.cli.given import utf8
from fairlane.connect import connect
from fairlane.contract import DEFAULT_QUEUE
from fairlane.transport import Transport

STARTUP_TIMEOUT = 2.0
"""Seconds to wait for a server that is not up: a person sits in front of it."""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The database, e.g. sqlite:///queue.db. Without it FAIRLANE_URL counts.",
        show_default=False,
    ),
]
Queue = Annotated[str, typer.Option("--queue", "-q", metavar="NAME", help="The queue.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="ROWS", help="How many rows at most, 1 to 10,000.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, callback=utf8)]
QUEUE = DEFAULT_QUEUE


def opened(url: str | None, queue: str) -> Transport[Any]:
    """Return a transport for the backend that the options or the environment name."""
    return connect(url, queue, startup_timeout=STARTUP_TIMEOUT)
