"""The options of the MongoDB backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import seconds, text


class MongoOptions(TypedDict, total=False):
    """The options of `MongoTransport`. `OPTIONS` documents them."""

    database: str
    timeout: float


OPTIONS = (
    Option(
        "database",
        text,
        default=None,
        doc="The name of the database. Otherwise the URL's path or the client names it; without any it is `fairlane`.",
        in_url=False,
        for_client=True,
    ),
    Option(
        "timeout",
        seconds(0.01),
        default=30.0,
        unit="seconds",
        doc="How long a call may take in total, 0.01 to 3,600. A shorter `timeoutMS` or `socketTimeoutMS` of the URL "
        "or the client counts instead.",
        for_client=True,
    ),
)
