"""The address of an rqlite cluster: its URL, its options, and the node to ask next. This module does not connect."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass

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
    """The address of a cluster, and the options of its connections.

    Attributes:
        nodes: `http://host:port` of the nodes in the URL. The cluster may have more nodes.
    """

    nodes: tuple[str, ...]

    @property
    def secure(self) -> bool:
        """Whether requests are encrypted."""
        return self.nodes[0].startswith("https:")


def locate(url: str, options: Mapping[str, object], *, own_client: bool = True) -> Address:
    """Read a URL: `rqlite://user:password@a:4001,b:4001,c:4001`, or `rqlites://…` for TLS. Ports are optional.

    Args:
        url: user and password with percent escapes. Its query may have options.
        options: see `OPTIONS`. They override the options of the URL.
        own_client: whether Fairlane makes the HTTP client. The application's own client has its own TLS settings.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    parts = parse_url(url, usual=_USUAL)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"the URL of rqlite has a wrong scheme: it looks like {_USUAL}")
    if parts.path.strip("/"):
        raise ConfigurationError("the URL of rqlite has no path: remove everything between the hosts and ?options")
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
    """Return the value of the header `Authorization`."""
    if parts.user is None:
        return None
    if ":" in parts.user:
        raise ConfigurationError("the name of a user of rqlite cannot contain a colon: HTTP does not allow it")
    return basic(parts.user, parts.password or "")


def leader_in(location: str) -> str | None:
    """Return the node that a redirect names, without the path; None if it names none."""
    try:
        parts = parse_url(location, usual="http://host:port")
        (host,) = parts.hosts
        return f"{parts.scheme}://{host.at(_HTTP_PORTS[parts.scheme])}"
    except (ConfigurationError, KeyError, ValueError):
        return None


class Nodes:
    """The node to ask: the leader if it is known, otherwise the next node. Threads may share this object.

    A result of one caller counts for all callers. A result about a node that is no longer the current one is ignored.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._others = itertools.cycle(addresses)
        self.current = next(self._others)
        self.count = len(addresses)

    def redirected(self, asked: str, leader: str) -> None:
        """Make the leader that the asked node has named the current node."""
        with self._lock:
            if self.current == asked:
                self.current = leader

    def failed(self, asked: str) -> None:
        """Make the next node the current one: the asked node is down or does not know a leader."""
        with self._lock:
            if self.current == asked:
                self.current = next(self._others)
                if self.current == asked:
                    self.current = next(self._others)
