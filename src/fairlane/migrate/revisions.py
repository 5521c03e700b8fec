"""Functions for revision files. Such a file names templates, and this module renders and applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fairlane.errors import ConfigurationError
from fairlane.migrate.settings import Settings
from fairlane.templates import render


@dataclass(frozen=True, slots=True)
class Files:
    """The templates of one revision for one dialect, in the order of their application.

    In `down`, templates outside of `schema/` are those of the revision before: a downgrade installs them again.
    """

    up: tuple[str, ...]
    down: tuple[str, ...]


Sink = Callable[[str], None]
"""Receives one rendered template: executes it, prints it, or collects it for the ledger's target."""


def apply(files: Mapping[str, Files], direction: Literal["up", "down"], *, revision: str, serves: str) -> None:
    """Render the templates of a revision and pass them to the sink of the running migration."""
    from alembic import op

    options = op.get_context().opts
    settings: Settings = options["fairlane_settings"]
    sink: Sink = options["fairlane_sink"]
    before: str | None = options["script"].get_revision(revision).down_revision
    if direction == "down" and before is None and not settings.lose_messages and not op.get_context().as_sql:
        _refuse_to_lose_messages(settings.choices.queue, options["fairlane_held"]())
    chosen = files.get(settings.manifest.dialect or "", Files((), ()))
    for path in chosen.up if direction == "up" else chosen.down:
        again = direction == "down" and before is not None and not path.startswith("schema/")
        text_of = before if again else revision
        sink(render(path, as_of=text_of, **settings.variables(str(text_of), serves)))


def _refuse_to_lose_messages(queue: str, found: int | None) -> None:
    if found is None or found:
        lost = "what cannot be counted" if found is None else "1 message" if found == 1 else f"{found:,} messages"
        raise ConfigurationError(
            f"the queue {queue} holds {lost}, which would be lost: add -x yes=1 to remove the queue"
        )
