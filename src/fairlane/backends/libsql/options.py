"""The options of the libSQL backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.http import TIMEOUTS, TLS
from fairlane.backends.shared.options import optional, text


class LibsqlOptions(TypedDict, total=False):
    """The options of `LibsqlTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    auth_token: str | None
    timeout: float
    retry_seconds: float
    ca_file: str | None
    verify: bool


OPTIONS = (
    Option(
        "auth_token",
        optional(text),
        default=None,
        aliases=("authToken",),
        doc="The token for the server. The password of the URL may be the token instead.",
    ),
    *TIMEOUTS,
    *TLS,
)
