"""The options of the SQLite backend."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import choice, seconds


class SqliteOptions(TypedDict, total=False):
    """The options of `SqliteTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    synchronous: Literal["full", "extra", "normal"]
    busy_timeout: float


OPTIONS = (
    Option(
        "synchronous",
        choice("full", "extra", "normal"),
        default="full",
        doc="Which operations wait for the disk. With `full`, publish, ack, nack and extend survive a power failure, "
        "and the last claims may be lost. With `extra`, claims survive too. With `normal`, the last operations of all "
        "kinds may be lost.",
    ),
    Option(
        "busy_timeout",
        seconds(0),
        default=10.0,
        unit="seconds",
        doc="How long an operation is repeated while other connections lock the file, 0 to 3,600.",
    ),
)
