"""What is known of a server that is talked to over HTTP, whatever its URLs look like."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from fairlane.backends.shared.options import boolean, ca_file, optional, seconds

TIMEOUT = 10.0
"""Seconds for one request: rqlite gives a write up to 10, sqld lets one hold the write lock idly for 5."""

RETRY_SECONDS = 10.0
"""Seconds for which an operation is tried again: a new leader of rqlite takes about 2, rarely 5."""

CONNECT_TIMEOUT = 3.0
HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\]")
PATIENCE_OPTIONS = ("timeout", "retry_seconds")
TLS_OPTIONS = ("ca_file", "verify")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """A server, or several, and how to talk to it.

    Attributes:
        host: for messages.
        authorization: what goes into the header of that name; None for whoever does not identify.
        timeout: seconds for one request.
        retry_seconds: seconds after which an operation is not tried again.
        ca_file: certificates to trust in place of the usual ones.
        verify: whether certificates count at all.
    """

    host: str
    authorization: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT
    retry_seconds: float = RETRY_SECONDS
    ca_file: str | None = None
    verify: bool = True

    @property
    def connect_timeout(self) -> float:
        """Seconds after which a server that does not even accept the connection counts as down."""
        return min(CONNECT_TIMEOUT, self.timeout)


def read_options(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the URL and of the caller as `HttpAddress` takes them.

    Raises:
        ConfigurationError: the value of one is wrong.
    """
    return {
        "timeout": seconds(0.01)("timeout", chosen.get("timeout", TIMEOUT)),
        "retry_seconds": seconds(0)("retry_seconds", chosen.get("retry_seconds", RETRY_SECONDS)),
        "ca_file": optional(ca_file)("ca_file", chosen.get("ca_file")),
        "verify": boolean("verify", chosen.get("verify", True)),
    }
