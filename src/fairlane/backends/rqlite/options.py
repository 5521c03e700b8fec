"""The options of the rqlite backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.shared.http import TIMEOUTS, TLS


class RqliteOptions(TypedDict, total=False):
    """The options of `RqliteTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    timeout: float
    retry_seconds: float
    ca_file: str | None
    verify: bool


OPTIONS = (*TIMEOUTS, *TLS)
