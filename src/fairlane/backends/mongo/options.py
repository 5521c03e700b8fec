"""The options of the MongoDB backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import text


class MongoOptions(TypedDict, total=False):
    """What `MongoTransport` takes besides. `OPTIONS` says what each is for."""

    database: str


OPTIONS = (
    Option(
        "database",
        text,
        default=None,
        doc="The database, instead of the one in the URL's path or the client's default; without any, `fairlane`.",
        in_url=False,
        for_client=True,
    ),
)
