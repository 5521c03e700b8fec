"""The address of an SQLite file: read a URL into a path and options. This module does not open the file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from fairlane.backends.shared.options import read_options
from fairlane.backends.sqlite.errors import check_version
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.errors import ConfigurationError
from fairlane.urls import Host, parse_url

_USUAL = "sqlite:///relative.db, sqlite:////absolute.db"
_DRIVE = re.compile(r"[/\\][A-Za-z]:")


@dataclass(frozen=True, slots=True)
class Location:
    """A file, and the options of its connections.

    Attributes:
        path: an absolute path, so that a later change of the working directory does not matter.
        synchronous, busy_timeout: see `OPTIONS`.
    """

    path: Path
    synchronous: str
    busy_timeout: float


def locate(url: str, options: Mapping[str, object]) -> Location:
    """Read a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, with percent escapes and `?synchronous=…`.

    Raises:
        ConfigurationError: the URL does not name a file, or an option is wrong.
    """
    check_version()
    parts = parse_url(url, usual=_USUAL, needs_host=False)
    if parts.user is not None or parts.password is not None:
        raise ConfigurationError(f"an SQLite URL has no user and no host: {_USUAL}")
    if parts.hosts and parts.hosts != (Host("localhost"),):
        raise ConfigurationError(
            f"an SQLite URL has no host, so its path begins with the third slash: sqlite:///{parts.shown}{parts.path}"
        )
    name = file_name(parts.path, drive_letters=os.name == "nt")
    if not name or name == ":memory:":
        raise ConfigurationError("an SQLite queue needs a file, sqlite:///queue.db; a queue in memory is memory://")
    if "\0" in name or name.endswith("/") or not _is_encodable(name):
        raise ConfigurationError(f"the path of the URL is not the name of a file: {name!r}")
    return Location(Path(name).absolute(), **read_options("sqlite", OPTIONS, url, options))


def file_name(path: str, *, drive_letters: bool) -> str:
    """Return the file name for the operating system, from the path of a URL.

    With drive letters, `sqlite:///C:/data/queue.db` and `sqlite:////C:/data/queue.db` both mean C:/data/queue.db.
    """
    name = unquote(path.removeprefix("/"), errors="surrogateescape")
    return name[1:] if drive_letters and _DRIVE.match(name) else name


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True
