"""What a migration runs on: a database that Alembic connects to, or one that gets each step from the ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class Choices:
    """What the DBA chose for one queue; the same names as `-x name=value` on Alembic's command line.

    Attributes:
        owner_role: owns everything: the migration sets this role first.
        app_role: may execute the procedures, and nothing else. None keeps what the queue has, `none` is nobody.
        reader_role: may read the views, and nothing else. None and `none` as above.
        head_start: how many seconds before the time of its first message a new group stands in line, 0 to 86,400, or
            `always`: before every served group. None keeps what the queue has, 1 second for a new one.
    """

    queue: str
    owner_role: str | None = None
    app_role: str | None = None
    reader_role: str | None = None
    head_start: str | None = None


NOBODY = "none"
"""Instead of a role. PostgreSQL has no role of this name."""


class SqlTarget(ABC):
    """A database that Alembic connects to, through SQLAlchemy. Making one connects to nothing."""

    dialect: ClassVar[str]
    """SQLAlchemy's name of it, for scripts that are only printed."""

    engine: ClassVar[str]
    """The URL of an SQLAlchemy engine, without a place: the driver gets our own URL as it is."""

    mends: ClassVar[bool] = False
    """There is a template `mended`, which sets right what may be wrong in a queue."""

    @abstractmethod
    def open(self, *, create: bool) -> Any:
        """Return a connection of the driver that begins no transaction by itself.

        Args:
            create: make the database if that is what a first connection does; else only look.
        """

    @abstractmethod
    def translate(self, error: BaseException | None) -> Exception | None:
        """Return what a driver's error means in a migration, None to let it through."""

    @abstractmethod
    def version_table(self) -> dict[str, Any]:
        """Name the queue's own version table, as arguments of Alembic: it never meets the application's."""

    @abstractmethod
    def settings_table(self) -> tuple[str, str | None]:
        """Return the table that clients read, and its schema."""

    def settled(self, look: Callable[[str], Sequence[Sequence[Any]]]) -> str | None:
        """Return the script that applies the choices to a queue that is there already, None for nothing.

        Args:
            look: returns the rows of a query.
        """
        return None

    def begin(self, *, create: bool) -> str | None:
        """Return the statement that begins the transaction, None where the driver does so."""
        return None

    def namespace(self) -> str | None:
        """Return the script that must have run before Alembic looks for its version table."""
        return None

    def statements(self, script: str) -> Iterable[str]:
        """Return what a rendered template is sent as."""
        return (script,)


class LedgerTarget(ABC):
    """A database that Alembic cannot connect to. Making one sends nothing."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[None]:
        """Let one migration of this queue run at a time; wait for another one, for a bounded time."""

    @abstractmethod
    def read(self) -> str | None:
        """Return the current revision, None when the queue is not there."""

    @abstractmethod
    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Bring the target to a revision: scripts and revision id together, or as near to that as it can.

        Args:
            scripts: rendered templates of the step.
            revision: the revision reached; None after the downgrade of the first, which removes the queue.
            serves: the oldest revision whose clients it serves.
            stamp: only write the revision, whatever the scripts.
        """

    def mend(self) -> None:  # noqa: B027 - most have nothing to mend
        """Set right what may be wrong in a queue; called after the last step of a migration, or without any."""

    @abstractmethod
    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return what a DBA would type or pipe in to apply the step by hand."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection."""


Target: TypeAlias = SqlTarget | LedgerTarget
