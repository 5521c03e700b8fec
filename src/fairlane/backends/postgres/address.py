"""The address of a database: URLs and connection strings of libpq, and the check of encodings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo

from fairlane.backends.postgres.options import OPTIONS
from fairlane.backends.shared.options import read_options, without_options
from fairlane.errors import ConfigurationError

AnyConnection: TypeAlias = psycopg.BaseConnection[Any]

_ENCODINGS = (
    (b"client_encoding", "open it with client_encoding=UTF8"),
    (b"server_encoding", "a queue needs a database that was created with encoding UTF8"),
)


def separated(url: str, keywords: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Return a URL for libpq, and Fairlane's options: from the keywords, else from the URL, else the defaults.

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
    """Refuse a URL that libpq cannot read. The message repeats no part of it, since any part may be the password.

    Raises:
        ConfigurationError: the URL is wrong. The message shows the usual form.
    """
    try:
        parts = conninfo.conninfo_to_dict(url)
        for host in str(parts.get("host", "")).split(","):
            if not host.startswith("/"):  # otherwise it is the folder of a socket
                host.encode("idna")  # the resolver encodes the name in the same way
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


def check_encoding(connection: AnyConnection) -> None:
    """Refuse a connection with another encoding than UTF8. A message with a character outside of it would block claims.

    Raises:
        ConfigurationError: the encoding of the client or of the database is not UTF8.
    """
    for parameter, remedy in _ENCODINGS:
        found = connection.pgconn.parameter_status(parameter)
        if found not in (b"UTF8", None):
            raise ConfigurationError(f"the {parameter.decode()} of this connection is {found.decode()}: {remedy}")


def host_in(parameters: str) -> str:
    """Return host and port of connection parameters, for messages."""
    parts = conninfo.conninfo_to_dict(parameters)
    return f"{parts.get('host') or parts.get('hostaddr') or 'localhost'}:{parts.get('port') or 5432}"
