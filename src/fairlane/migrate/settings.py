"""The settings of a migration: its database, its queue, and the choices of the DBA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from fairlane.backends import MANIFESTS, manifest_of
from fairlane.backends.manifest import Manifest
from fairlane.backends.targets import NOBODY, Choices, Target
from fairlane.contract import DEFAULT_HEAD_START, DEFAULT_QUEUE, check_head_start, check_queue
from fairlane.errors import ConfigurationError
from fairlane.urls import scheme_of

OPTIONS = tuple(field.name for field in fields(Choices) if field.name != "queue")
"""The names of the choices, without the queue. Alembic's command line has the same names: `-x name=value`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one migration.

    Attributes:
        url: the database.
        choices: the choices of the DBA.
        lose_messages: whether the migration may remove a queue that holds messages.
    """

    url: str
    choices: Choices
    lose_messages: bool = True

    def __post_init__(self) -> None:
        check_queue(self.choices.queue)
        for name in OPTIONS:
            if getattr(self.choices, name) is not None and name not in self.manifest.choices:
                self._refuse(name)
        if self.choices.head_start is not None:
            try:
                head_start = check_head_start(self.choices.head_start)
            except ValueError as error:
                raise ConfigurationError(f"{error}") from error
            object.__setattr__(self, "choices", replace(self.choices, head_start=head_start))

    def _refuse(self, name: str) -> None:
        takers = ", ".join(manifest.name for manifest in MANIFESTS.values() if name in manifest.choices)
        raise ConfigurationError(f"{name} is an option of {takers}, not of {self.manifest.name}: leave it out")

    @property
    def manifest(self) -> Manifest:
        """The manifest of the URL's backend."""
        return manifest_of(scheme_of(self.url))

    def target(self) -> Target:
        """Return the target of the migration, without connecting to it."""
        make = self.manifest.target
        assert make is not None, "callers do not ask for the target of a backend that is not migrated"
        return make(self.url, self.choices)

    def variables(self, revision: str, serves: str) -> dict[str, str | None]:
        """Return the variables for the templates of a revision."""
        return {
            "queue": self.choices.queue,
            "dialect": self.manifest.name,
            "owner_role": self.choices.owner_role,
            "app_role": _role_or_none(self.choices.app_role),
            "reader_role": _role_or_none(self.choices.reader_role),
            "head_start": self.choices.head_start or DEFAULT_HEAD_START,
            "revision": revision,
            "serves": serves,
        }


def _role_or_none(role: str | None) -> str | None:
    return None if role == NOBODY else role


def from_arguments(arguments: Mapping[str, str], default_url: str | None) -> Settings:
    """Make settings from Alembic's `-x name=value` arguments.

    Raises:
        ConfigurationError: an argument is unknown, or the URL is missing.
    """
    unknown = sorted(set(arguments) - {"url", "queue", "yes", *OPTIONS})
    if unknown:
        raise ConfigurationError(f"unknown -x argument: {', '.join(unknown)}")
    url = arguments.get("url") or default_url
    if url is None:
        raise ConfigurationError("name the database: -x url=…, or set FAIRLANE_URL")
    chosen = {name: arguments.get(name) or None for name in OPTIONS}
    choices = Choices(arguments.get("queue", DEFAULT_QUEUE), **chosen)
    return Settings(url, choices, lose_messages="yes" in arguments)
