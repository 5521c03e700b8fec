"""Where a libSQL server is: its URL, its options, and how to identify to it. Nothing here connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlane.backends.libsql.options import OPTIONS
from fairlane.backends.shared.http import HttpAddress, basic, check_tls
from fairlane.backends.shared.options import read_options
from fairlane.errors import ConfigurationError, UnsupportedByBackend
from fairlane.urls import Url, parse_url

PORTS = {"http": 8080, "https": 443}
"""Without a port in the URL: sqld's own default, and that of TLS everywhere."""

_SCHEMES = {"libsql": "https", "libsql+https": "https", "libsql+http": "http"}
_USUAL = "libsql://:TOKEN@host with TLS, libsql+http://host:8080 without"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(HttpAddress):
    """A server and how to talk to it.

    Attributes:
        url: what its HTTP API is below, with a slash at the end.
    """

    url: str


def locate(url: str, options: dict[str, Any]) -> Address:
    """Read a URL: `libsql://host` with TLS, `libsql+http://host:8080` without.

    Args:
        url: the token is its password, `libsql://:TOKEN@host`, or `?authToken=TOKEN`, with percent escapes. With a
            user, the two are for a server with `--http-auth`. Other options may stand in the query as well.
        options: see `OPTIONS`; they go before those of the URL.

    Raises:
        ConfigurationError: the URL or an option is wrong.
        UnsupportedByBackend: an embedded replica is asked for.
    """
    if url.startswith("file:"):
        raise ConfigurationError(
            "a libSQL file is an SQLite file: use SqliteTransport, with the URL sqlite:///path/to/file.db"
        )
    parts = parse_url(url, usual=_USUAL)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"the URL of libSQL begins with another word: it looks like {_USUAL}")
    if len(parts.hosts) != 1:
        raise ConfigurationError(f"the URL of libSQL names one host: it looks like {_USUAL}")
    given = {*parts.options, *options}
    _check_options(given)
    scheme = _SCHEMES[parts.scheme]
    if scheme == "http":
        check_tls(parts.scheme, given, "libsql")
    values = read_options("libsql", OPTIONS, url, options)
    return Address(
        url=f"{scheme}://{parts.hosts[0].at(PORTS[scheme])}{parts.path.rstrip('/')}/",
        host=parts.shown,
        authorization=_authorization(parts, values.pop("auth_token")),
        **values,
    )


def _check_options(given: set[str]) -> None:
    """Say of options that other clients of libSQL take why there are none of them here."""
    if given & {"sync_url", "syncUrl"}:
        raise UnsupportedByBackend(
            "libsql",
            "embedded replicas (sync_url)",
            "a replica may be behind, and a claim must see what was published: give the URL of the server itself",
        )
    if "tls" in given:
        raise ConfigurationError("the scheme says whether there is TLS: libsql:// with it, libsql+http:// without")


def _authorization(parts: Url, token: str | None) -> str | None:
    """Return the header's value."""
    if parts.user and not parts.password:
        raise ConfigurationError("a token is the URL's password, not its user: libsql://:TOKEN@host")
    if token is not None and parts.password:
        raise ConfigurationError("two tokens: one in the URL's password, one in authToken; leave one out")
    if parts.user:
        return basic(parts.user, parts.password or "")
    token = parts.password or token
    if not token:
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token for libSQL is no token: it must be printable ASCII without blanks")
    return f"Bearer {token}"
