"""The demo's input: the `status` lines of a real dpkg log. Each is an event of one package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from fairlane.templates import bundle_root

LOG = "examples/dpkg.log"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log: the status of a package at some time."""

    at: str
    status: str
    package: str
    version: str


Published = dict[str, str]


def published(event: Event) -> Published:
    """Return the JSON value that is published for an event."""
    return asdict(event)


def read_log(limit: int | None = None) -> list[Event]:
    """Return the first `limit` events of the log that is part of Fairlane, the oldest first."""
    path = bundle_root() / LOG
    return parse(path.read_text(encoding="utf-8").splitlines())[:limit]


def parse(lines: Iterable[str]) -> list[Event]:
    """Return the events of a log. Their lines look like `2025-06-24 14:36:25 status unpacked libc6:amd64 2.36-9`."""
    split = (line.split() for line in lines)
    return [
        Event(f"{words[0]} {words[1]}", words[3], words[4], words[5])
        for words in split
        if len(words) == 6 and words[2] == "status"
    ]


def by_package(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of each package, in their order."""
    packages: dict[str, list[Event]] = {}
    for event in events:
        packages.setdefault(event.package, []).append(event)
    return packages
