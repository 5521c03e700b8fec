"""The options of the rqlite backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.shared.http import TIMEOUTS, TLS


class RqliteOptions(TypedDict, total=False):
    """What `RqliteTransport.from_url` takes besides, and the query of a URL. `OPTIONS` says what each is for."""

    timeout: float
    retry_seconds: float
    ca_file: str | None
    verify: bool


OPTIONS = (*TIMEOUTS, *TLS)
