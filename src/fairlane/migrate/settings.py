"""The settings of a migration: its database, its queue, and the choices of the DBA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fairlane.backends import MANIFESTS, manifest_of
from fairlane.backends.manifest import Manifest
from fairlane.backends.shared import retry
from fairlane.backends.shared.retry import STARTUP_PAUSES, Within
from fairlane.backends.targets import NOBODY, Choices, Target
from fairlane.contract import DEFAULT_QUEUE, check_queue
from fairlane.errors import BackendUnavailable, ConfigurationError
from fairlane.migrate.stored_settings import CHANGEABLE, valid
from fairlane.program import ResultT, run
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
        kept: the settings that the queue has so far, as far as they can be changed. They count where the DBA has chosen
            nothing.
    """

    url: str
    choices: Choices
    lose_messages: bool = True
    kept: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_queue(self.choices.queue)
        for name in OPTIONS:
            if getattr(self.choices, name) is not None and name not in self.manifest.choices:
                self._refuse(name)
        try:
            checked = {
                name: setting.check(getattr(self.choices, name))
                for name, setting in CHANGEABLE.items()
                if setting.check is not None and getattr(self.choices, name) is not None
            }
        except ValueError as error:
            raise ConfigurationError(f"{error}") from error
        object.__setattr__(self, "choices", replace(self.choices, **checked))

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

    @property
    def chosen(self) -> dict[str, str]:
        """The settings that the DBA has chosen, as queues store them."""
        choices = {name: getattr(self.choices, name) for name in CHANGEABLE}
        return {name: choice for name, choice in choices.items() if choice is not None}

    def of_queue(self, stored: Mapping[str, str | None] | None) -> Settings:
        """Return the same settings for a queue that has stored these; None if it is not there."""
        return replace(self, kept=valid(stored or {}))

    def variables(self, revision: str, serves: str) -> dict[str, Any]:
        """Return the variables for the templates of a revision."""
        return {
            "queue": self.choices.queue,
            "dialect": self.manifest.name,
            "owner_role": self.choices.owner_role,
            "app_role": _role_or_none(self.choices.app_role),
            "reader_role": _role_or_none(self.choices.reader_role),
            "is_assumed": "head_start" not in {**self.kept, **self.chosen},
            "revision": revision,
            "serves": serves,
            **{name: setting.default for name, setting in CHANGEABLE.items()},
            **self.kept,
            **self.chosen,
        }


def _role_or_none(role: str | None) -> str | None:
    return None if role == NOBODY else role


def settings_for(
    url: str, queue: str, options: Mapping[str, str | None], head_start: float | str | None = None
) -> Settings:
    """Make settings from the arguments of `fairlane.migrate`.

    Raises:
        ConfigurationError: an option is unknown, or a value is wrong.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ConfigurationError(f"unknown option of a migration: {', '.join(unknown)}")
    chosen = dict(options)
    if head_start is not None:
        chosen["head_start"] = str(head_start)
    return Settings(url, Choices(queue, **chosen))


def retried(action: Callable[[], ResultT], timeout: float) -> ResultT:
    """Try again while the server is not up, for at most `timeout` seconds."""
    policy = Within(timeout, STARTUP_PAUSES, BackendUnavailable)
    return run(retry.retried(lambda: retry.ask(action), policy), lambda request: request())


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
