"""Targets of a migration: databases that Alembic can connect to, and databases that get each step from the ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the DBA for one queue. Alembic's command line has the same names: `-x name=value`.

    Attributes:
        owner_role: the role that owns everything. The migration sets this role first.
        app_role: the role that may only execute the procedures. None keeps the current role; `none` means no role.
        reader_role: the role that may only read the views. None and `none` as above.
        head_start: seconds, 0 to 86,400: a new group stands in line this long before the time of its first message.
            With `always` it stands before every served group. None keeps the current value, 1 second in a new queue.
    """

    queue: str
    owner_role: str | None = None
    app_role: str | None = None
    reader_role: str | None = None
    head_start: str | None = None


STORED = ("revision", "serves", *(field.name for field in fields(Choices) if field.name != "queue"))
"""The names under which a queue stores its revision and what the DBA has chosen."""


def shown(value: object) -> str:
    """Return a stored text. Bytes that are not UTF-8, which somebody has written by hand, are replaced."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


NOBODY = "none"
"""The word that stands for no role. PostgreSQL does not allow a role of this name."""


class SqlTarget(ABC):
    """A database that Alembic connects to, through SQLAlchemy. The constructor does not connect."""

    dialect: ClassVar[str]
    """The name of SQLAlchemy's dialect, for scripts that are only printed."""

    engine: ClassVar[str]
    """The URL of an SQLAlchemy engine, without an address: `open` makes the connections."""

    repairs: ClassVar[bool] = False
    """Whether there is a template `repaired`, which repairs damage in a queue."""

    looks_first: ClassVar[bool] = False
    """Whether there is a template `damaged`, a query that says whether a repair is needed. For a database where all
    writers wait for a repair."""

    @abstractmethod
    def open(self, *, create: bool) -> Any:
        """Return a connection of the driver that begins no transaction by itself.

        Args:
            create: whether connecting may make a database that does not exist.
        """

    @abstractmethod
    def translate(self, error: BaseException | None) -> Exception | None:
        """Return Fairlane's error for a driver's error in a migration, or None to let the driver's error pass."""

    def is_contended(self, error: BaseException | None) -> bool:
        """Return whether a driver's error says that another transaction has a lock, and that trying again may help."""
        return False

    @abstractmethod
    def version_table(self) -> dict[str, Any]:
        """Return the arguments of Alembic that name the queue's own version table, separate from the application's."""

    @abstractmethod
    def settings_table(self) -> tuple[str, str | None]:
        """Return the name of the settings table, which clients read, and its schema."""

    def settled(self, look: Callable[[str], Sequence[Sequence[Any]]]) -> str | None:
        """Return the script that applies the choices to an existing queue, or None if nothing changes.

        Args:
            look: returns the rows of a query.
        """
        return None

    def begin(self, *, writes: bool) -> str | None:
        """Return the statement that begins the transaction, or None if the driver begins it."""
        return None

    def locked(self) -> str | None:
        """Return the script that takes the lock of the queue's migrations, or None if the transaction itself has it."""
        return None

    def configured(self) -> str | None:
        """Return the script to run in a transaction of its own after settings were changed, or None."""
        return None

    def namespace(self) -> str | None:
        """Return the script that must have run before Alembic looks for its version table."""
        return None

    def statements(self, script: str) -> Iterable[str]:
        """Return the statements in which a rendered template is sent."""
        return (script,)


class LedgerTarget(ABC):
    """A database that Alembic cannot connect to. The constructor sends nothing."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[None]:
        """Return a context in which no other migration of this queue runs; wait for another one for a limited time."""

    @abstractmethod
    def read(self) -> str | None:
        """Return the current revision, or None if the queue is not there."""

    @abstractmethod
    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Apply one step: scripts and revision id in one atomic request, or as close to that as the server allows.

        Args:
            scripts: rendered templates of the step.
            revision: the revision after the step; None if the step removes the queue.
            serves: the oldest revision whose clients it serves.
            stamp: only write the revision and ignore the scripts.
        """

    @abstractmethod
    def stored(self) -> dict[str, str | None] | None:
        """Return the settings that the queue stores, with its revision. None if the queue is not there."""

    @abstractmethod
    def configure(self, changes: Mapping[str, str], scripts: Sequence[str]) -> None:
        """Change settings of an existing queue, in one atomic request. The caller holds the lock.

        Args:
            changes: the new texts, by name.
            scripts: the stored procedures that contain these settings, rendered with the new ones.
        """

    def remains(self) -> bool:
        """Return whether there is anything of a queue that has no revision: a step that was killed may leave some."""
        return False

    def repair(self) -> None:  # noqa: B027 - most targets have nothing to repair
        """Repair damage in a queue. Called after the last step of a migration, also if there was no step."""

    @abstractmethod
    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return the text that a DBA can run to apply the step by hand."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection."""


Target: TypeAlias = SqlTarget | LedgerTarget
