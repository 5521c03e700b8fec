"""Parts of backend URLs that are safe to show."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fairlane.errors import ConfigurationError

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?=:)")

_AUTHORITY = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")

_HOSTS = re.compile(r"(\[[^\]]*\]|[^:,]*)(:\d*)?(,(\[[^\]]*\]|[^:,]*)(:\d*)?)*")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case.

    Raises:
        ConfigurationError: there is none. The text does not repeat the URL, which may hold a password.
    """
    found = _SCHEME.match(url) if isinstance(url, str) else None
    if not found:
        raise ConfigurationError(
            "a backend URL starts with its scheme, such as sqlite:///queue.db or postgresql://host/database"
        )
    return found.group().lower()


def host_of(url: str) -> str:
    """Return where a URL points, for messages: hosts and ports, or the path of a file, never the credentials."""
    rest = url.split("://", 1)[-1]
    authority, slash, path = rest.partition("/")
    # a password may hold an unescaped '?' or '#': what is before the last '@' goes first
    authority = authority.rpartition("@")[2].split("?", 1)[0].split("#", 1)[0]
    # one with an unescaped '/' moves the '@' into what looks like the path: show nothing of it
    if authority and ("@" in path.split("?", 1)[0] or ("@" in path and not _HOSTS.fullmatch(authority))):
        authority, path = path.rpartition("@")[2].partition("/")[0], ""
    if authority:
        return unquote(authority)
    return unquote(path.split("?", 1)[0]) if slash and path else "localhost"


def split_url(url: str) -> SplitResult:
    """Split a URL that may name several hosts, some of them IPv6 addresses: `[::1]:7000,b:7000`.

    `urlsplit` itself takes brackets only around the one host there is, in the Pythons of 2025 and later.
    """
    found = _AUTHORITY.match(url)
    if found is None:
        return urlsplit(url)
    return urlsplit(url[: found.start(1)] + url[found.end(1) :])._replace(netloc=found[1])


def options_of(url: str) -> dict[str, str]:
    """Return the query options of a URL, the last of each name."""
    return dict(parse_qsl(split_url(url).query, keep_blank_values=True))
