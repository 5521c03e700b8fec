"""The address of a libSQL server: its URL, options and credentials. This module does not connect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairlane.backends.libsql.options import OPTIONS
from fairlane.backends.shared.http import HttpAddress, basic, check_tls
from fairlane.backends.shared.options import read_options
from fairlane.errors import ConfigurationError, UnsupportedByBackend
from fairlane.urls import Url, parse_url

PORTS = {"http": 8080, "https": 443}
"""The ports for URLs without a port: the default of sqld, and the usual port of TLS."""

_SCHEMES = {"libsql": "https", "libsql+https": "https", "libsql+http": "http"}
_USUAL = "libsql://:TOKEN@host with TLS, libsql+http://host:8080 without"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(HttpAddress):
    """The address of a server, and the options of its connections.

    Attributes:
        url: the base URL of its HTTP API, with a slash at the end.
    """

    url: str


def locate(url: str, options: Mapping[str, object]) -> Address:
    """Read a URL: `libsql://host` with TLS, `libsql+http://host:8080` without.

    Args:
        url: the token is its password, `libsql://:TOKEN@host`, or `?authToken=TOKEN`, with percent escapes. User and
            password together are for a server with `--http-auth`. The query may have other options too.
        options: see `OPTIONS`. They override the options of the URL.

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
        raise ConfigurationError(f"the URL of libSQL has a wrong scheme: it looks like {_USUAL}")
    if len(parts.hosts) != 1:
        raise ConfigurationError(f"the URL of libSQL must have one host: it looks like {_USUAL}")
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
    """Refuse options of other libSQL clients that Fairlane does not support, with the reason."""
    if given & {"sync_url", "syncUrl"}:
        raise UnsupportedByBackend(
            "libsql",
            "embedded replicas (sync_url)",
            "a replica may be behind the server, and a claim must see all published messages: use the server's URL",
        )
    if "tls" in given:
        raise ConfigurationError("leave out tls, since the scheme decides: libsql:// with TLS, libsql+http:// without")


def _authorization(parts: Url, token: str | None) -> str | None:
    """Return the value of the header `Authorization`."""
    if parts.user and not parts.password:
        raise ConfigurationError("a token is the URL's password, not its user: libsql://:TOKEN@host")
    if token is not None and parts.password:
        raise ConfigurationError("there are two tokens, the URL's password and authToken: leave one out")
    if parts.user:
        return basic(parts.user, parts.password or "")
    token = parts.password or token
    if not token:
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token for libSQL must be printable ASCII without blanks")
    return f"Bearer {token}"
