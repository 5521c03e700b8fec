"""The options of the libSQL backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.http import TIMEOUTS, TLS
from fairlane.backends.shared.options import optional, text


class LibsqlOptions(TypedDict, total=False):
    """What `LibsqlTransport.from_url` takes besides, and the query of a URL. `OPTIONS` says what each is for."""

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
        doc="The token that the server wants to see. It may also be the password in the URL.",
    ),
    *TIMEOUTS,
    *TLS,
)
