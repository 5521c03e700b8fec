"""Migrate queues with Alembic, called from Python; read and change their settings, and remove them.

`fairlane migrate`, `fairlane queue` and `fairlane drop` call this module; for migrations the command
`alembic -x url=… -x queue=…` does the same. This module does not change the logging configuration of the application.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlane.backends import manifest_of
from fairlane.backends.base import fits
from fairlane.contract import CLIENT_REVISION, DEFAULT_QUEUE, check_queue
from fairlane.errors import ConfigurationError, FairlaneError
from fairlane.migrate.queues import configure, drop, queue_settings
from fairlane.migrate.settings import Settings, retried, settings_for
from fairlane.migrate.stored_settings import QueueSettings
from fairlane.program import run
from fairlane.templates import bundle_root
from fairlane.urls import scheme_of

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "QueueSettings",
    "Status",
    "configure",
    "downgrade",
    "drop",
    "include_object",
    "migrate",
    "queue_settings",
    "script",
    "status",
    "upgrade",
]

# Alembic keeps its environment in a global variable, so a process can run only one migration at a time
_alembic = threading.RLock()


@dataclass(frozen=True, slots=True)
class Status:
    """Whether a queue's schema fits this client. `found` is its revision, None if the queue is not there.

    `fault` says what is wrong with the stored data and how to repair it.
    """

    queue: str
    found: str | None
    serves: str | None
    needed: str
    fault: str | None = None

    @property
    def ready(self) -> bool:
        """Whether this client can work with the queue."""
        served = self.found is not None and self.found >= self.needed >= (self.serves or "")
        return served and self.fault is None


def upgrade(
    url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    revision: str = "head",
    startup_timeout: float = 0.0,
    head_start: float | str | None = None,
    **options: str | None,
) -> None:
    """Upgrade a queue's schema to a revision, or create it. Do nothing if it has that revision.

    Args:
        url: the database, as for `connect`. Its user needs the right to create what is missing.
        queue: the name of the queue to create or migrate.
        revision: `head`, or a four-digit id.
        startup_timeout: seconds to wait for a server that is not up yet.
        head_start: seconds, 0 to 86,400: a new group stands in line this long before the time of its first message.
            0 is the order of arrival; with `always` it stands before every served group. None: 1 second in a new
            queue, no change in an existing one. In an existing queue it is changed as by `configure`.
        options: `owner_role`, `app_role`, `reader_role` (Postgres).

    Raises:
        ConfigurationError: the URL, an option or the revision is wrong.
        BackendUnavailable: the database cannot be reached.
        AuthenticationFailed: the database refused the credentials, or the user lacks a right.
    """
    from alembic import command

    settings = settings_for(url, queue, options, head_start)
    retried(lambda: _with_alembic(command.upgrade, settings, revision), startup_timeout)


def downgrade(url: str, *, queue: str = DEFAULT_QUEUE, revision: str, **options: str | None) -> None:
    """Downgrade a queue's schema to a revision; `base` removes the queue and all its messages."""
    from alembic import command

    _with_alembic(command.downgrade, settings_for(url, queue, options), revision)


def migrate(
    url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    revision: str = "head",
    startup_timeout: float = 0.0,
    head_start: float | str | None = None,
    **options: str | None,
) -> None:
    """Upgrade or downgrade a queue's schema to a revision; arguments and errors as in `upgrade`."""
    found = status(url, queue=queue, startup_timeout=startup_timeout).found
    if revision == "base" and found is None:
        return
    back = revision == "base" or (found is not None and revision.isdigit() and revision < found)
    if back:
        downgrade(url, queue=queue, revision=revision, **options)
    else:
        upgrade(url, queue=queue, revision=revision, startup_timeout=startup_timeout, head_start=head_start, **options)


def script(
    url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    revision: str = "head",
    head_start: float | str | None = None,
    **options: str | None,
) -> str:
    """Return a script that a DBA can apply by hand instead of `migrate`. This does not connect to the database.

    `revision` may be a range such as `0001:head`; `base` stands for `head:base`, which removes the queue.
    """
    from alembic import command

    start, _, end = revision.rpartition(":")
    back = end == "base" or (start.isdigit() and end.isdigit() and end < start)
    output = io.StringIO()
    settings = settings_for(url, queue, options, head_start)
    if back:
        _with_alembic(command.downgrade, settings, f"{start or 'head'}:{end}", output, sql=True)
    else:
        _with_alembic(command.upgrade, settings, revision, output, sql=True)
    return output.getvalue()


def status(url: str, *, queue: str = DEFAULT_QUEUE, startup_timeout: float = 0.0) -> Status:
    """Read the revision of a queue from its database, and compare it with the revision that this client needs."""
    backend = manifest_of(scheme_of(url)).loaded()
    name = check_queue(queue)
    executor = backend.executor.from_url(url, name)
    try:
        core = backend.core(name)
        revision = retried(lambda: run(core.revision(), executor.execute), startup_timeout)
        # the search for faults reads tables that another revision may not have
        fault = run(core.fault(), executor.execute) if revision is not None and fits(revision) else None
    finally:
        executor.close()
    if revision is None:
        return Status(name, None, None, CLIENT_REVISION)
    return Status(name, revision.found, revision.serves, CLIENT_REVISION, fault)


def include_object(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    """Exclude queues from the application's own Alembic: `context.configure(…, include_object=include_object)`.

    Without it, `alembic check` and `--autogenerate` propose to drop the tables of every queue that they find. To
    combine it with a filter of your own: `lambda *arguments: include_object(*arguments) and mine(*arguments)`.

    Args:
        item: a table or a part of a table. Alembic passes this and the other arguments.

    Raises:
        ConfigurationError: no Alembic command is running that is connected to a database.
    """
    from fairlane.migrate.host import belongs_to_queue

    table = item if kind == "table" else getattr(item, "table", None)
    return table is None or not belongs_to_queue(table)


def _config(settings: Settings, output: io.StringIO | None) -> Config:
    from alembic.config import Config

    quiet = io.StringIO()
    config = Config(str(bundle_root() / "alembic.ini"), stdout=output or quiet, output_buffer=output)
    config.attributes["fairlane_settings"] = settings
    return config


def _with_alembic(
    action: Callable[..., object],
    settings: Settings,
    revision: str,
    output: io.StringIO | None = None,
    **flags: bool,
) -> None:
    from alembic.util import CommandError

    backend = settings.manifest.loaded()  # raises MissingExtra if the driver is missing
    if settings.manifest.target is None:  # nothing is migrated: the first transport makes the queue
        backend.executor.from_url(settings.url, settings.choices.queue).close()  # refuses a wrong URL
        return
    if not revision:
        raise ConfigurationError("name a revision: head, base, or a four-digit id")
    with _alembic:
        try:
            action(_config(settings, output), revision, **flags)
        except CommandError as error:
            if isinstance(error.__cause__, FairlaneError):
                raise error.__cause__ from None
            raise ConfigurationError(f"{error}") from error
