"""The options of the MongoDB backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import seconds, text


class MongoOptions(TypedDict, total=False):
    """What `MongoTransport` takes besides. `OPTIONS` says what each is for."""

    database: str
    timeout: float


OPTIONS = (
    Option(
        "database",
        text,
        default=None,
        doc="The database, instead of the one in the URL's path or the client's default; without any, `fairlane`.",
        in_url=False,
        for_client=True,
    ),
    Option(
        "timeout",
        seconds(0.01),
        default=30.0,
        unit="seconds",
        doc="How long a call may take in all, 0.01 to 3,600. If the URL or the client has a shorter `timeoutMS` or "
        "`socketTimeoutMS`, that counts.",
        for_client=True,
    ),
)
