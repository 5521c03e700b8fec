"""Addresses, timeouts and options of servers that are used over HTTP."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlane.backends.base import Limit
from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import boolean, ca_file, optional, seconds
from fairlane.backends.shared.retry import Pauses, Timed
from fairlane.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

TIMEOUT = 30.0
RETRY_SECONDS = 10.0
CONNECT_TIMEOUT = 3.0
REQUESTS = 3
"""A request gets this part of a call's timeout. If it gets no answer, another one can be sent, to another node."""

SHORTEST = 0.01
"""Minimum seconds for every try, also after the deadline."""

PAUSES = Pauses(0.05, 0.5)
"""Pauses between two tries while a server is down, or while a cluster has no leader."""

TIMEOUTS = (
    Option(
        "timeout",
        seconds(0.01),
        default=TIMEOUT,
        unit="seconds",
        for_client=True,
        doc="How long a call may take in total, 0.01 to 3,600. A single request gets a third of it, so that another "
        "connection or another node can be tried.",
    ),
    Option(
        "retry_seconds",
        seconds(0),
        default=RETRY_SECONDS,
        unit="seconds",
        for_client=True,
        doc="How long a call is repeated if it fails, 0 to 3,600, within its `timeout`. rqlite elects a new leader in "
        "about 2 seconds, rarely 5.",
    ),
)
TLS = (
    Option(
        "ca_file",
        optional(ca_file),
        default=None,
        doc="A file of certificates (PEM) to trust instead of those of the system.",
    ),
    Option("verify", boolean, default=True, doc="Whether the server's certificate is checked."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """The address of one server or several, and the options of its connections.

    Attributes:
        host: for messages.
        authorization: the value of the header `Authorization`; None for no header.
        timeout, retry_seconds, ca_file, verify: see `TIMEOUTS` and `TLS`.
    """

    host: str
    authorization: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT
    retry_seconds: float = RETRY_SECONDS
    ca_file: str | None = None
    verify: bool = True

    @property
    def request_timeout(self) -> float:
        """Seconds for one request of a call."""
        return self.timeout / REQUESTS

    @property
    def connect_timeout(self) -> float:
        """Seconds to wait for a connection. A server that does not accept one in this time counts as down."""
        return min(CONNECT_TIMEOUT, self.request_timeout / 2)

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS setting for aiohttp and httpx: a context, True for their default, or False for no check."""
        import ssl  # imported here, since it takes 10 ms and manifests import this module

        if not self.verify:
            return False
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True


class Clock:
    """Computes how long the requests of an executor may take.

    Args:
        timeout: seconds for a call, with all its repeated requests.
    """

    def __init__(self, timeout: float) -> None:
        self.limit = Limit(timeout)
        self._timeout = timeout

    def seconds_for(self, request: Timed) -> float:
        """Return the seconds that the next try of a request may take."""
        return min(self._timeout / REQUESTS, self.left(request))

    def left(self, request: Timed) -> float:
        """Return the seconds until the deadline of a request. The first call for a request sets the deadline."""
        now = time.monotonic()
        if request.ends is None:
            request.ends = self.limit.deadline(now)
        return max(SHORTEST, request.ends - now)

    def parts_for(self, request: Timed, connect_timeout: float) -> tuple[float, float]:
        """Return the seconds to connect and the seconds to wait for an answer, for clients with two timeouts."""
        seconds = self.seconds_for(request)
        connect = min(connect_timeout, seconds / 4)
        assert request.ends is not None
        return connect, max(SHORTEST, min(seconds, request.ends - time.monotonic() - connect))


def check_tls(scheme: str, given: Iterable[str], secure: str) -> None:
    """Refuse options of TLS if the URL has a scheme without TLS.

    Raises:
        ConfigurationError: there are such options. The message names them.
    """
    without = [option.name for option in TLS if option.name in set(given)]
    if without:
        raise ConfigurationError(f"{', '.join(without)} works only with {secure}://, and this URL has {scheme}://")


def basic(user: str, password: str) -> str:
    """Return the header's value for a user and a password in UTF-8. HTTP clients would encode them in Latin-1."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def excerpt(text: str | bytes) -> str:
    """Return the beginning of an answer as one line, for messages."""
    shown = text[:400]
    if isinstance(shown, bytes):
        shown = shown.decode("utf-8", "replace")
    return " ".join(shown.split())[:200]


def innermost(error: BaseException) -> str:
    """Return the text of the innermost error, since HTTP clients wrap the error of the network several times."""
    seen: list[BaseException] = [error]
    while (inner := seen[-1].__cause__ or seen[-1].__context__ or getattr(seen[-1], "reason", None)) is not None:
        if not isinstance(inner, BaseException) or inner in seen:
            break
        seen.append(inner)
    said = [text for each in seen if (text := str(getattr(each, "strerror", None) or each))]
    return excerpt(said[-1]) if said else type(error).__name__
