"""Parse the URLs of backends, and find the parts of them that are safe to show.

No error message repeats any part of a URL, since in a malformed URL any part may belong to a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fairlane.errors import ConfigurationError

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?=:)")

_AUTHORITY = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")

_HOSTS = re.compile(r"(\[[^\]]*\]|[^:,]*)(:\d*)?(,(\[[^\]]*\]|[^:,]*)(:\d*)?)*")

_PARTS = re.compile(
    r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(\?(?P<query>[^#]*))?(?P<rest>#)?",
    re.DOTALL,
)
_HOST_AND_PORT = re.compile(r"(?P<name>\[[^\[\]]*\]|[^:\[\]]*)(:(?P<port>[0-9]{0,6}))?")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")

_ESCAPES = "in user, password and options write the characters / ? # @ : % [ ] as percent escapes, such as %2F"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a URL.

    Attributes:
        name: a name or an address; IPv6 without brackets; empty if the URL has none.
        port: 1 to 65535; None if the URL has none.
    """

    name: str
    port: int | None = None

    def at(self, default: int) -> str:
        """Return `name:port`, with the default port if the host has none; IPv6 in brackets."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port or default}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """The parts of a URL, with percent escapes decoded (except in `path`).

    Attributes:
        scheme: in lower case.
        user: None if the URL has none.
        password: None if the URL has none; never shown.
        hosts: the hosts, which a URL separates by commas; empty if the URL has none.
        path: the path from its slash on, with its percent escapes, since the name of a file may contain bytes that
            are not UTF-8.
        options: the options of the query. If a name occurs twice, the last one counts.
        shown: hosts and ports, or the path of a file, for messages.
    """

    scheme: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hosts: tuple[Host, ...] = ()
    path: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    shown: str = "localhost"


def parse_url(url: str, *, usual: str, needs_host: bool = True) -> Url:
    """Parse a URL.

    Args:
        url: `scheme://user:password@host:port,host:port/path?option=value`; all parts after `://` are optional.
        usual: an example of a URL of this backend, for messages.
        needs_host: whether every host must have a name.

    Raises:
        ConfigurationError: the URL is malformed. The message repeats no part of it.
    """
    try:
        return _parsed(url, needs_host)
    except _Wrong as wrong:
        reason = str(wrong)
    raise ConfigurationError(f"the URL is wrong: {reason}; it looks like {usual}")


class _Wrong(Exception):
    """The reason why a URL is malformed. It never leaves this module, so it never becomes the context of an error."""


def _parsed(url: str, needs_host: bool) -> Url:
    parts = _PARTS.match(url) if isinstance(url, str) else None
    if parts is None:
        raise _Wrong("it must begin with its scheme and ://")
    authority, path, query = parts["authority"], parts["path"], parts["query"] or ""
    if authority and "@" in url[parts.end("authority") :]:  # the password contains an unescaped / ? or #
        raise _Wrong(_ESCAPES)
    if parts["rest"]:
        raise _Wrong("it has no #fragment, and a # in it must be written as %23")
    login, at, hosts = authority.rpartition("@")
    user, colon, password = login.partition(":")
    return Url(
        scheme=parts["scheme"].lower(),
        user=_unescaped(user) if at else None,
        password=_unescaped(password) if colon else None,
        hosts=tuple(_host(each, needs_host) for each in hosts.split(",")) if hosts or needs_host else (),
        path=path,
        options=MappingProxyType(_options(query)),
        shown=host_of(url),
    )


def _unescaped(text: str) -> str:
    try:
        text.encode()
        return unquote(text, errors="strict")
    except ValueError:
        pass
    raise _Wrong(f"user and password must be UTF-8; {_ESCAPES}")


def _options(query: str) -> dict[str, str]:
    try:
        query.encode()
        return dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
    except ValueError:
        pass
    raise _Wrong("its options must be UTF-8")


def _host(text: str, needed: bool) -> Host:
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise _Wrong("a host must be a name or an address, IPv6 in brackets, and a port a number")
    name, port = found["name"], found["port"] or None
    if port is not None and not 0 < int(port) < 65536:
        raise _Wrong("a port must be a number from 1 to 65535")
    if name.startswith("["):
        name = name[1:-1].replace("%25", "%")
        if not _IPV6.fullmatch(name):
            raise _Wrong("what stands in brackets must be an IPv6 address")
    elif name or needed:
        _check_name(name)
    return Host(name, None if port is None else int(port))


def _check_name(name: str) -> None:
    """Refuse a text that cannot be the name of a host, in any alphabet."""
    if not name:
        raise _Wrong("a host is missing")
    try:
        ascii_name = name.encode("idna").decode()  # the resolver encodes the name in the same way
    except UnicodeError:
        ascii_name = ""
    if not _NAME.fullmatch(name if name.isascii() else ascii_name):
        raise _Wrong("a host must be a name or an address")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case.

    Raises:
        ConfigurationError: there is none. The message does not repeat the URL, which may contain a password.
    """
    found = _SCHEME.match(url) if isinstance(url, str) else None
    if not found:
        raise ConfigurationError(
            "a backend URL starts with its scheme, such as sqlite:///queue.db or postgresql://host/database"
        )
    return found.group().lower()


def host_of(url: str) -> str:
    """Return hosts and ports of a URL, or the path of a file, for messages; never the credentials."""
    rest = url.split("://", 1)[-1]
    authority, slash, path = rest.partition("/")
    # remove all before the last '@' first, since a password may contain an unescaped '?' or '#'
    authority = authority.rpartition("@")[2].split("?", 1)[0].split("#", 1)[0]
    # a password with an unescaped '/' puts the '@' into the path: then do not show the path
    if authority and ("@" in path.split("?", 1)[0] or ("@" in path and not _HOSTS.fullmatch(authority))):
        authority, path = path.rpartition("@")[2].partition("/")[0], ""
    if authority:
        return unquote(authority)
    return unquote(path.split("?", 1)[0]) if slash and path else "localhost"


def split_url(url: str) -> SplitResult:
    """Split a URL that may name several hosts, also IPv6 addresses: `[::1]:7000,b:7000`.

    In Pythons of 2025 and later, `urlsplit` accepts brackets only if there is a single host.
    """
    found = _AUTHORITY.match(url)
    if found is None:
        return urlsplit(url)
    return urlsplit(url[: found.start(1)] + url[found.end(1) :])._replace(netloc=found[1])


def options_of(url: str) -> dict[str, str]:
    """Return the options in the query of a URL. If a name occurs twice, the last one counts."""
    return dict(parse_qsl(split_url(url).query, keep_blank_values=True))
