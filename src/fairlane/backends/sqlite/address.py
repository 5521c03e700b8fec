"""Where a queue's SQLite file is: a URL, read into a path and options. Nothing here opens it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fairlane.backends.shared.options import read_options
from fairlane.backends.sqlite.errors import check_version
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.errors import ConfigurationError
from fairlane.urls import split_url


@dataclass(frozen=True, slots=True)
class Location:
    """A file and how to use it.

    Attributes:
        path: absolute, so that a later change of the working directory does not matter.
        synchronous, busy_timeout: see `OPTIONS`.
    """

    path: Path
    synchronous: str
    busy_timeout: float


def locate(url: str, options: dict[str, Any]) -> Location:
    """Read a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, with percent escapes and `?synchronous=…`.

    Raises:
        ConfigurationError: it names no file, or an option is wrong.
    """
    check_version()
    parts = split_url(url)
    name = unquote(parts.path.removeprefix("/"), errors="surrogateescape")
    if parts.netloc and parts.netloc != "localhost":
        raise ConfigurationError(
            f"an SQLite URL has no host, so its path begins with the third slash: sqlite:///{parts.netloc}{parts.path}"
            if "@" not in url
            else "an SQLite URL has no user and no host: sqlite:///relative.db, sqlite:////absolute.db"
        )
    if not name or name == ":memory:":
        raise ConfigurationError("an SQLite queue lives in a file, sqlite:///queue.db: for one in memory use memory://")
    if "\0" in name or name.endswith("/") or not _is_encodable(name):
        raise ConfigurationError(f"not the name of a file: {name!r}")
    return Location(Path(name).absolute(), **read_options("sqlite", OPTIONS, url, options))


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True
