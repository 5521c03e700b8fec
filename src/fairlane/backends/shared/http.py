"""What is known of a server that is talked to over HTTP, whatever its URLs look like."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
"""How many requests fit into the timeout of a call: one that gets no answer is worth another one, to another node."""

AT_START = 1.0
"""Seconds that a call gets at least while a transport starts."""

SHORTEST = 0.01
"""Seconds that every try gets, however late it is."""

PAUSES = Pauses(0.05, 0.5)
"""Between two tries while a server is down, or while a cluster has no leader."""

TIMEOUTS = (
    Option(
        "timeout",
        seconds(0.01),
        default=TIMEOUT,
        unit="seconds",
        for_client=True,
        doc="How long a call may take in all, 0.01 to 3,600. A single request gets a third of it, so that another "
        "connection, or another node, can be tried.",
    ),
    Option(
        "retry_seconds",
        seconds(0),
        default=RETRY_SECONDS,
        unit="seconds",
        for_client=True,
        doc="How long a call is tried again, 0 to 3,600, within its `timeout`. A new leader of rqlite takes about "
        "2 seconds, rarely 5.",
    ),
)
TLS = (
    Option(
        "ca_file",
        optional(ca_file),
        default=None,
        doc="A file of certificates (PEM) to trust in place of those of the system.",
    ),
    Option("verify", boolean, default=True, doc="Whether the server's certificate is checked at all."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """A server, or several, and how to talk to it.

    Attributes:
        host: for messages.
        authorization: what goes into the header of that name; None for whoever does not identify.
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
        """Seconds for one request."""
        return self.timeout / REQUESTS

    @property
    def connect_timeout(self) -> float:
        """Seconds after which a server that does not even accept the connection counts as down."""
        return min(CONNECT_TIMEOUT, self.request_timeout / 2)

    def tls(self) -> ssl.SSLContext | bool:
        """Return what aiohttp and httpx take: a context, or whether they make one themselves."""
        import ssl  # it takes 10 ms, and a manifest imports this module

        if not self.verify:
            return False
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True


class Clock:
    """Says how long the requests of an executor may take.

    Args:
        timeout: seconds for a call, whatever is sent again in it.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._until: float | None = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let calls inside of the context end so many seconds from its beginning; see `base.Limited`."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = None

    def seconds_for(self, request: Timed) -> float:
        """Return how long the next try of a request may take; the first one notes when the last one must be over."""
        return min(self._timeout / REQUESTS, self.left(request))

    def left(self, request: Timed) -> float:
        """Return how long the caller of a request goes on waiting."""
        now = time.monotonic()
        if request.ends is None:
            request.ends = now + self._timeout if self._until is None else max(self._until, now + AT_START)
        return max(SHORTEST, request.ends - now)

    def parts_for(self, request: Timed, connect_timeout: float) -> tuple[float, float]:
        """Return the same for a client that counts apart: seconds to connect, and seconds to wait for an answer."""
        seconds = self.seconds_for(request)
        connect = min(connect_timeout, seconds / 4)
        assert request.ends is not None
        return connect, max(SHORTEST, min(seconds, request.ends - time.monotonic() - connect))


def check_tls(scheme: str, given: Iterable[str], secure: str) -> None:
    """Refuse options of TLS with a URL that says there is none.

    Raises:
        ConfigurationError: naming them.
    """
    without = [option.name for option in TLS if option.name in set(given)]
    if without:
        raise ConfigurationError(f"{', '.join(without)} is for {secure}:// only, and this URL has {scheme}://")


def basic(user: str, password: str) -> str:
    """Return the header's value for a user and a password, in UTF-8: HTTP clients themselves would take Latin-1."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def excerpt(text: str | bytes) -> str:
    """Return the beginning of an answer in one line, for messages."""
    shown = text[:400]
    if isinstance(shown, bytes):
        shown = shown.decode("utf-8", "replace")
    return " ".join(shown.split())[:200]


def innermost(error: BaseException) -> str:
    """Return the text of the error at the bottom: HTTP clients wrap what the network said several times over."""
    seen: list[BaseException] = [error]
    while (inner := seen[-1].__cause__ or seen[-1].__context__ or getattr(seen[-1], "reason", None)) is not None:
        if not isinstance(inner, BaseException) or inner in seen:
            break
        seen.append(inner)
    said = [text for each in seen if (text := str(getattr(each, "strerror", None) or each))]
    return excerpt(said[-1]) if said else type(error).__name__
