"""The options of the SQLite backend."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import choice, seconds


class SqliteOptions(TypedDict, total=False):
    """What `SqliteTransport.from_url` takes besides, and the query of a URL. `OPTIONS` says what each is for."""

    synchronous: Literal["full", "extra", "normal"]
    busy_timeout: float


OPTIONS = (
    Option(
        "synchronous",
        choice("full", "extra", "normal"),
        default="full",
        doc="What waits for the disk. `full` keeps what was published, acked, given back or extended through a power "
        "failure, and may forget the last claims; `extra` keeps claims too; `normal` may forget the last operations "
        "of all kinds.",
    ),
    Option(
        "busy_timeout",
        seconds(0),
        default=10.0,
        unit="seconds",
        doc="How long an operation is tried again while other connections hold the file, 0 to 3,600.",
    ),
)
