"""Where a libSQL server is: its URL, its options, and how to identify to it. Nothing here connects."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from fairlane.backends.shared.http import HOST, PATIENCE_OPTIONS, TLS_OPTIONS, HttpAddress, read_options
from fairlane.backends.shared.options import check_options
from fairlane.errors import ConfigurationError, UnsupportedByBackend
from fairlane.urls import host_of, options_of

PORTS = {"http": 8080, "https": 443}
"""Without a port in the URL: sqld's own default, and that of TLS everywhere."""

_SCHEMES = {"libsql": "https", "libsql+https": "https", "libsql+http": "http"}
_OPTIONS = ("auth_token", *PATIENCE_OPTIONS, *TLS_OPTIONS)
_SPELLINGS = {"authToken": "auth_token", "syncUrl": "sync_url"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address(HttpAddress):
    """A server and how to talk to it.

    Attributes:
        url: what its HTTP API is below, with a slash at the end.
    """

    url: str

    def tls(self) -> ssl.SSLContext | bool:
        """Return what aiohttp takes for its `ssl`."""
        if not self.verify:
            return False
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True


def locate(url: str, options: dict[str, Any]) -> Address:
    """Read a URL: `libsql://host` with TLS, `libsql+http://host:8080` without.

    Args:
        url: the token is its password, `libsql://:TOKEN@host`, or `?authToken=TOKEN`, with percent escapes. With a
            user, the two are for a server with `--http-auth`. Other options may stand in the query as well.
        options: `auth_token`, `timeout`, `retry_seconds`, and for TLS `ca_file` and `verify`, as `HttpAddress` says.

    Raises:
        ConfigurationError: the URL or an option is wrong.
        UnsupportedByBackend: an embedded replica is asked for.
    """
    scheme, login, host, path = _parts(url)
    chosen = {_SPELLINGS.get(name, name): value for name, value in [*options_of(url).items(), *options.items()]}
    if "sync_url" in chosen:
        raise UnsupportedByBackend(
            "libsql",
            "embedded replicas (sync_url)",
            "a replica may be behind, and a claim must see what was published: give the URL of the server itself",
        )
    if "tls" in chosen:
        raise ConfigurationError("the scheme says whether there is TLS: libsql:// with it, libsql+http:// without")
    check_options("libsql", chosen, _OPTIONS)
    if scheme == "http" and (without := [name for name in TLS_OPTIONS if name in chosen]):
        raise ConfigurationError(f"{', '.join(without)} makes sense with TLS only, and this URL is libsql+http://")
    return Address(
        url=f"{scheme}://{host}{path}/",
        host=host_of(url),
        authorization=_authorization(login, chosen.get("auth_token")),
        **read_options(chosen),
    )


def _parts(url: str) -> tuple[str, str | None, str, str]:
    """Return scheme, login, host and path. No message repeats a part of the URL that may belong to a token."""
    if url.startswith("file:"):
        raise ConfigurationError(
            "a libSQL file is an SQLite file: use SqliteTransport, with the URL sqlite:///path/to/file.db"
        )
    try:
        url.encode()
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # of Unicode too
        raise ConfigurationError("the URL of libSQL has a malformed host, or no number as its port") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError("the URL of libSQL begins with libsql:// or, without TLS, with libsql+http://")
    if "@" in parts.path + parts.query + parts.fragment:
        raise ConfigurationError(
            "the URL of libSQL is wrong: / ? # @ in a token or password must be written as percent escapes"
        )
    if parts.fragment:
        raise ConfigurationError("the URL of libSQL ends with its host, a path, or ?options; it has no #fragment")
    login, at, address = parts.netloc.rpartition("@")
    host = address if address.endswith("]") or parts.port is None else address.rpartition(":")[0]
    host = host.removesuffix(":")
    if not HOST.fullmatch(host):
        raise ConfigurationError("the URL of libSQL names no host: libsql://host, or libsql+http://host:8080")
    scheme = _SCHEMES[parts.scheme]
    return scheme, login if at else None, f"{host}:{port or PORTS[scheme]}", parts.path.rstrip("/")


def _authorization(login: str | None, token: Any) -> str | None:
    """Return the header's value."""
    user, _, password = ("" if login is None else login).partition(":")
    user, password = unquote(user), unquote(password)
    if user and not password:
        raise ConfigurationError("a token is the URL's password, not its user: libsql://:TOKEN@host")
    if token is not None and password:
        raise ConfigurationError("two tokens: one in the URL's password, one in authToken; leave one out")
    if user:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    token = password or token
    if not token:
        return None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("the token for libSQL is no token: it must be printable ASCII without blanks")
    return f"Bearer {token}"
