"""Where to connect: libpq's URLs and connection strings, and which connections can carry every text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import conninfo

from fairlane.backends.postgres.options import OPTIONS
from fairlane.backends.shared.options import read_options, without_options
from fairlane.errors import ConfigurationError

_ENCODINGS = (
    (b"client_encoding", "open it with client_encoding=UTF8"),
    (b"server_encoding", "a queue needs a database that was created with encoding UTF8"),
)


def separated(url: str, keywords: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a URL as libpq reads it, and the options of Fairlane: of the keywords, else of the URL, else the defaults.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    try:
        rest = without_options(url, OPTIONS)
    except ValueError:
        rest = url
    check_url(rest)
    return rest, read_options("postgres", OPTIONS, url, keywords, others=True)


def check_url(url: str) -> None:
    """Refuse a URL that libpq cannot read. The text repeats no part of it: any part may be of the password.

    Raises:
        ConfigurationError: naming what is usual.
    """
    try:
        parts = conninfo.conninfo_to_dict(url)
        for host in str(parts.get("host", "")).split(","):
            if not host.startswith("/"):  # else the folder of a socket
                host.encode("idna")  # as the look-up of names will
    except (psycopg.Error, UnicodeError):
        parts = None
    if parts is None or "@" in str(parts.get("host", "")):
        raise ConfigurationError(
            "this is not a PostgreSQL URL, which looks like postgresql://user:password@host:5432/database?option=…; "
            "special characters of user and password are percent-encoded, options are those of libpq"
        ) from None
    try:
        int(float(parts.get("connect_timeout") or 0))
    except (ValueError, OverflowError):
        raise ConfigurationError(f"connect_timeout must be a number of seconds: {parts['connect_timeout']!r}") from None


def check_encoding(connection: psycopg.BaseConnection[Any]) -> None:
    """Refuse a connection that cannot carry every text: its first message with another character would block claims.

    Raises:
        ConfigurationError: the client's encoding, or that of the database, is not UTF8.
    """
    for who, remedy in _ENCODINGS:
        found = connection.pgconn.parameter_status(who)
        if found not in (b"UTF8", None):
            raise ConfigurationError(f"the {who.decode()} of this connection is {found.decode()}: {remedy}")


def host_in(parameters: str) -> str:
    """Return where connection parameters point, for messages."""
    parts = conninfo.conninfo_to_dict(parameters)
    return f"{parts.get('host') or parts.get('hostaddr') or 'localhost'}:{parts.get('port') or 5432}"
