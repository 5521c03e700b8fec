"""Where an rqlite cluster is: its URL, its options, and which of its nodes to ask next. Nothing here connects."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import Any

from fairlane.backends.rqlite.options import OPTIONS
from fairlane.backends.shared.http import HttpAddress, basic, check_tls
from fairlane.backends.shared.options import read_options
from fairlane.errors import ConfigurationError
from fairlane.urls import Url, parse_url

PORT = 4001
_SCHEMES = {"rqlite": "http", "rqlites": "https"}
_HTTP_PORTS = {"http": 80, "https": 443}
_USUAL = "rqlite://user:password@host:4001, several hosts after commas, or rqlites:// for TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(HttpAddress):
    """A cluster and how to talk to it.

    Attributes:
        nodes: `http://host:port` of those that the URL names; there may be more.
    """

    nodes: tuple[str, ...]

    @property
    def secure(self) -> bool:
        """Whether requests are encrypted."""
        return self.nodes[0].startswith("https:")


def locate(url: str, options: dict[str, Any], *, own_client: bool = True) -> Address:
    """Read a URL: `rqlite://user:password@a:4001,b:4001,c:4001`, or `rqlites://…` for TLS; the port may be left out.

    Args:
        url: user and password with percent escapes; the options may stand in its query.
        options: see `OPTIONS`; they go before those of the URL.
        own_client: whether the HTTP client is ours; a client of the application has TLS settings of its own.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    parts = parse_url(url, usual=_USUAL)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"the URL of rqlite begins with another word: it looks like {_USUAL}")
    if parts.path.strip("/"):
        raise ConfigurationError("the URL of rqlite ends with its hosts, or with ?options; it has no path")
    scheme = _SCHEMES[parts.scheme]
    if scheme == "http":
        check_tls(parts.scheme, {*parts.options, *options}, "rqlites")
    known = tuple(option for option in OPTIONS if own_client or option.for_client)
    values = read_options("rqlite", known, url, options)
    return Address(
        nodes=tuple(dict.fromkeys(f"{scheme}://{host.at(PORT)}" for host in parts.hosts)),
        host=parts.shown,
        authorization=_authorization(parts),
        **values,
    )


def _authorization(parts: Url) -> str | None:
    """Return the header's value."""
    if parts.user is None:
        return None
    if ":" in parts.user:
        raise ConfigurationError("a user of rqlite cannot have a colon in the name: HTTP has no way to say it")
    return basic(parts.user, parts.password or "")


def leader_in(location: str) -> str | None:
    """Return the node that a redirect names, without the path, which is that of our request; None if it names none."""
    try:
        parts = parse_url(location, usual="http://host:port")
        (host,) = parts.hosts
        return f"{parts.scheme}://{host.at(_HTTP_PORTS[parts.scheme])}"
    except (ConfigurationError, KeyError, ValueError):
        return None


class Nodes:
    """Which node to ask: the leader, as far as it is known, or else the next one. Threads may share it.

    What one caller finds out counts for all; what it says of a node that is no longer asked is old news.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._others = itertools.cycle(addresses)
        self.current = next(self._others)
        self.count = len(addresses)

    def redirected(self, asked: str, leader: str) -> None:
        """Ask the leader that a node has named."""
        with self._lock:
            if self.current == asked:
                self.current = leader

    def failed(self, asked: str) -> None:
        """Ask the next node: this one is down, or knows of no leader."""
        with self._lock:
            if self.current == asked:
                self.current = next(self._others)
                if self.current == asked:
                    self.current = next(self._others)
