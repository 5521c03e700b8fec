"""The options that several commands share, and the function that opens a queue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlane.backends import manifest_of
from fairlane.cli.input import utf8
from fairlane.connect import connect
from fairlane.contract import DEFAULT_QUEUE
from fairlane.environ import resolve_url
from fairlane.errors import ConfigurationError
from fairlane.transport import Transport
from fairlane.urls import scheme_of

STARTUP_TIMEOUT = 2.0
"""Seconds to wait for a server that is not up. Short, since a person waits for the command."""

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


def head_start_option(default: str | None) -> Any:
    """Return the option for the head start of a queue, with the default that its help shows; None shows none."""
    return typer.Option(
        "--head-start",
        metavar="SECONDS|always",
        help="New groups go before groups served within this time; 0: order of arrival; always: before all served.",
        show_default=default or False,
    )


def opened(url: str | None, queue: str) -> Transport[Any]:
    """Return a transport for the backend that the options or the environment variables name.

    Raises:
        ConfigurationError: the queue would end with this command, and what is published would be lost.
    """
    chosen = resolve_url(url)
    if manifest_of(scheme_of(chosen)).capabilities.reach == "process":
        raise ConfigurationError(
            f"a {scheme_of(chosen)}:// queue lives in one process, so a command sees only one of its own, which ends "
            "with it: name a database, such as sqlite:///queue.db"
        )
    return connect(chosen, queue, startup_timeout=STARTUP_TIMEOUT)
