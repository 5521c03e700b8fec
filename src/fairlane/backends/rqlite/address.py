"""Where an rqlite cluster is: its URL, its options, and which of its nodes to ask next. Nothing here connects."""

from __future__ import annotations

import base64
import itertools
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from fairlane.backends.shared.http import HOST, PATIENCE_OPTIONS, TLS_OPTIONS, HttpAddress, read_options
from fairlane.backends.shared.options import check_options
from fairlane.errors import ConfigurationError
from fairlane.urls import host_of, options_of, split_url

PORT = 4001
_SCHEMES = {"rqlite": "http", "rqlites": "https"}


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
        options: `timeout`, `retry_seconds`, and for TLS `ca_file` and `verify`, as `HttpAddress` says.
        own_client: whether the HTTP client is ours; TLS is none of our business otherwise.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    scheme, login, hosts = _parts(url)
    chosen = {**options_of(url), **options}
    check_options("rqlite", chosen, PATIENCE_OPTIONS + (TLS_OPTIONS if own_client else ()))
    if scheme == "http" and (without := [name for name in TLS_OPTIONS if name in chosen]):
        raise ConfigurationError(f"{', '.join(without)} makes sense for rqlites:// only, and this URL has rqlite://")
    return Address(
        nodes=tuple(dict.fromkeys(f"{scheme}://{node_of(host)}" for host in hosts.split(","))),
        host=host_of(url),
        authorization=_authorization(login),
        **read_options(chosen),
    )


def _parts(url: str) -> tuple[str, str | None, str]:
    """Return scheme, login and hosts. No message repeats a part of the URL that may belong to a password."""
    parts = split_url(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ConfigurationError(
            "the URL of rqlite is wrong: in user and password the characters / ? # @ must be written as percent escapes"
        )
    if parts.path.strip("/") or parts.fragment:
        raise ConfigurationError("the URL of rqlite ends with its hosts, or with ?options; it has no path")
    login, at, hosts = parts.netloc.rpartition("@")
    if not hosts:
        raise ConfigurationError("the URL of rqlite names no host: rqlite://host:4001, several after commas")
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError("the URL of rqlite begins with rqlite:// or, for TLS, with rqlites://")
    return _SCHEMES[parts.scheme], login if at else None, hosts


def node_of(text: str, default: int = PORT) -> str:
    """Return host and port, once it is clear that they are a host and a port."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default)
    if not HOST.fullmatch(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"not host:port of an rqlite node: {text!r}")
    return f"{host}:{int(port)}"


def _authorization(login: str | None) -> str | None:
    """Return the header's value, in UTF-8: the drivers' own helpers would take Latin-1."""
    if login is None:
        return None
    user, _, password = login.partition(":")
    if ":" in unquote(user):
        raise ConfigurationError("a user of rqlite cannot have a colon in the name: HTTP has no way to say it")
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


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
        """A node named another one as the leader."""
        with self._lock:
            if self.current == asked:
                self.current = leader

    def failed(self, asked: str) -> None:
        """A node is down, or knows of no leader: it is another one's turn."""
        with self._lock:
            if self.current == asked:
                self.current = next(self._others)
                if self.current == asked:
                    self.current = next(self._others)
