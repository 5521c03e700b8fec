"""What a migration is told: which database, which queue, which choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.backends import name_for
from fairlane.contract import DEFAULT_HEAD_START, check_head_start, check_queue
from fairlane.errors import ConfigurationError
from fairlane.urls import scheme_of

OPTIONS = ("owner_role", "app_role", "reader_role", "head_start")


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of one migration; the same names as `-x name=value` on Alembic's command line.

    Attributes:
        owner_role: Postgres: `set role` to it first, so that it owns everything.
        app_role: Postgres: may execute the procedures, and nothing else.
        reader_role: Postgres: may read the views, and nothing else.
        head_start: how many seconds before the time of its first message a new group stands in line, 0 to 86,400, or
            `always`: before every served group. None keeps what the queue has, 1 second for a new one.
        options: what else the backend's target takes, e.g. `allow_eviction` on Redis.
    """

    url: str
    queue: str
    owner_role: str | None = None
    app_role: str | None = None
    reader_role: str | None = None
    head_start: str | None = None

    def __post_init__(self) -> None:
        check_queue(self.queue)
        if self.head_start is not None:
            self._check_head_start(self.head_start)
        roles = (self.owner_role, self.app_role, self.reader_role)
        if any(roles) and self.backend != "postgres":
            raise ConfigurationError(f"roles are for postgres; {self.backend} has none: leave them out")

    def _check_head_start(self, given: str) -> None:
        if self.backend == "memory":
            raise ConfigurationError(
                "a queue in memory is not migrated: use InMemoryTransport(MemoryStore(head_start=…))"
            )
        try:
            object.__setattr__(self, "head_start", check_head_start(given))
        except ValueError as error:
            raise ConfigurationError(f"{error}") from error

    @property
    def backend(self) -> str:
        """The name of the backend that the URL points to."""
        return name_for(scheme_of(self.url))

    def variables(self, revision: str, serves: str) -> dict[str, Any]:
        """Return what the templates of a revision are rendered with."""
        return {
            "queue": self.queue,
            "dialect": self.backend,
            "owner_role": self.owner_role,
            "app_role": self.app_role,
            "reader_role": self.reader_role,
            "head_start": self.head_start or DEFAULT_HEAD_START,
            "revision": revision,
            "serves": serves,
        }


def from_arguments(arguments: Mapping[str, str], default_url: str | None) -> Settings:
    """Make settings of Alembic's `-x name=value` arguments.

    Raises:
        ConfigurationError: an argument is unknown, or the URL is missing.
    """
    unknown = sorted(set(arguments) - {"url", "queue", *OPTIONS})
    if unknown:
        raise ConfigurationError(f"unknown -x argument: {', '.join(unknown)}")
    url = arguments.get("url") or default_url
    if url is None:
        raise ConfigurationError("name the database: -x url=…, or set FAIRLANE_URL")
    return Settings(url, arguments.get("queue", "fairlane"), *(arguments.get(name) or None for name in OPTIONS))
