"""The settings that a DBA decides for a queue, and that the queue stores. `SETTINGS` is the table of them.

Every queue stores its settings by these names: in a table, in a hash, in a document or in tags. Where the stored
procedures contain a setting, because to read it would cost time in each call, their templates use its name.
`configuring` finds these templates by that, and installs them again when the setting changes. To add a setting, add a
line to the table, a field to `QueueSettings` and to `Choices`, and an option to `configure` and to the command line. A
test compares these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fairlane.contract import ALWAYS, DEFAULT_HEAD_START, check_head_start
from fairlane.errors import QueueDamaged

HeadStart: TypeAlias = float | Literal["always"]
"""Seconds, or `always`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: its name in the queue, in `QueueSettings`, in `Choices` and in the templates.
        since: the first revision whose queues have it.
        capability: the capability without which a backend does not have it; None if it needs none.
        read: makes the value of a stored text. It raises ValueError if no migration can have stored the text.
        check: makes the text to store of a value. None if the setting cannot be changed alone.
        default: the text that a new queue stores if the DBA chooses nothing.
        unit: the unit of a number, for example s.
    """

    name: str
    since: str = "0001"
    capability: str | None = None
    read: Callable[[str], Any] = str
    check: Callable[[object], str] | None = None
    default: str | None = None
    unit: str | None = None

    @property
    def option(self) -> str:
        """Its option on the command line."""
        return f"--{self.name.replace('_', '-')}"


def _head_start(stored: str) -> HeadStart:
    checked = check_head_start(stored)
    return "always" if checked == ALWAYS else float(checked)


SETTINGS = (
    Setting(
        "head_start",
        capability="head_start",
        read=_head_start,
        check=check_head_start,
        default=DEFAULT_HEAD_START,
        unit="s",
    ),
    Setting("owner_role"),
    Setting("app_role"),
    Setting("reader_role"),
)
"""All settings, in the order in which they are shown."""

CHANGEABLE = {setting.name: setting for setting in SETTINGS if setting.check is not None}
"""The settings that `configure` changes, by name. A migration sets roles, since it grants and revokes their rights."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue. A setting that its backend or its revision does not have is None.

    Attributes:
        queue: the name of the queue.
        revision: the revision of its layout.
        serves: the oldest revision whose clients it serves.
        head_start: seconds that a new group stands in line before the time of its first message, or `always`.
        owner_role: Postgres: the role that owned the queue when it was made.
        app_role: Postgres: the role that may execute the functions.
        reader_role: Postgres: the role that may read the views.
    """

    queue: str
    revision: str | None
    serves: str | None
    head_start: HeadStart | None = None
    owner_role: str | None = None
    app_role: str | None = None
    reader_role: str | None = None


def settings_in(queue: str, stored: Mapping[str, str | None], *, strict: bool = True) -> QueueSettings:
    """Return the settings of a queue from what it stores.

    Args:
        queue: its name.
        stored: the stored texts, and the revision.
        strict: raise an error if a text is damaged. If not, its setting is None.

    Raises:
        QueueDamaged: no migration can have stored such a text.
    """
    values = {}
    for setting in SETTINGS:
        text = stored.get(setting.name)
        try:
            values[setting.name] = None if text is None else setting.read(text)
        except ValueError as error:
            if strict:
                remedy = f"`fairlane queue set --queue {queue} {setting.option} …` sets it again"
                raise QueueDamaged(queue, f"its setting {setting.name} is {text!r:.200}: {remedy}") from error
            values[setting.name] = None
    return QueueSettings(queue, stored.get("revision"), stored.get("serves"), **values)


def valid(stored: Mapping[str, str | None]) -> dict[str, str]:
    """Return the stored texts of settings that can be changed, without damaged ones."""
    kept = {}
    for name, setting in CHANGEABLE.items():
        text = stored.get(name)
        try:
            if text is not None and setting.check is not None:
                kept[name] = setting.check(text)
        except ValueError:
            continue
    return kept
