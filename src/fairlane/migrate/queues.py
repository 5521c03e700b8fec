"""Read and change the settings of a queue, and remove it. `fairlane.migrate` exports these functions."""

from __future__ import annotations

from fairlane.contract import DEFAULT_QUEUE
from fairlane.migrate import configuring, dropping
from fairlane.migrate.settings import retried, settings_for
from fairlane.migrate.stored_settings import QueueSettings, settings_in
from fairlane.model import QueueStatus


def queue_settings(url: str, *, queue: str = DEFAULT_QUEUE, startup_timeout: float = 0.0) -> QueueSettings:
    """Return the settings that a DBA has decided for a queue. Nothing is changed.

    Args:
        url: the database, as for `connect`. Its user needs the right to read the settings; on Postgres that of the
            queue's owner.
        queue: the name of the queue.
        startup_timeout: seconds to wait for a server that is not up yet.

    Raises:
        SchemaNotReady: the queue is not there.
        QueueDamaged: somebody has changed a setting by hand, and its value is wrong.
        ConfigurationError: the URL is wrong, or the backend stores no settings (memory).
        BackendUnavailable: the database cannot be reached.
        AuthenticationFailed: the database refused the credentials, or the user lacks a right.
    """
    settings = settings_for(url, queue, {})
    configuring.check_kept(settings)
    settings.manifest.loaded()
    return settings_in(queue, retried(lambda: configuring.read(settings), startup_timeout))


def configure(
    url: str,
    *,
    queue: str = DEFAULT_QUEUE,
    startup_timeout: float = 0.0,
    owner_role: str | None = None,
    head_start: float | str | None = None,
) -> tuple[QueueSettings, QueueSettings]:
    """Change settings of an existing queue, all of them or none. Return the settings before and after.

    Applications may go on working meanwhile. A call that runs at that moment may still use the old setting. Like a
    migration this waits for other migrations of the queue.

    Args:
        url: the database, as for `connect`. Its user needs the rights of the queue's owner.
        queue: the name of the queue.
        startup_timeout: seconds to wait for a server that is not up yet.
        owner_role: Postgres: the role to set first, as in `upgrade`.
        head_start: seconds, 0 to 86,400, or `always`: as in `upgrade`. It counts for groups that become non-empty from
            now on; groups that have messages keep their places. None: no change.

    Raises:
        SchemaNotReady: the queue is not there, or not at the revision of this version of the package.
        UnsupportedByBackend: the backend does not have this setting.
        ConfigurationError: the URL or a value is wrong, or no setting is named.
        BackendUnavailable: the database cannot be reached, or another migration did not end.
        AuthenticationFailed: the database refused the credentials, or the user lacks a right.
    """
    settings = settings_for(url, queue, _owner(owner_role), head_start)
    configuring.check_chosen(settings)
    configuring.check_kept(settings)
    settings.manifest.loaded()
    before, after = retried(lambda: configuring.change(settings), startup_timeout)
    return settings_in(queue, before, strict=False), settings_in(queue, after, strict=False)


def drop(url: str, *, queue: str = DEFAULT_QUEUE, startup_timeout: float = 0.0, owner_role: str | None = None) -> None:
    """Remove a queue with all its messages.

    If it is interrupted, call it again: it also removes what is left of a queue. Something may be left on Redis and
    MongoDB only. Elsewhere a queue is removed in one transaction or one request.

    Args:
        url: the database, as for `connect`. Its user needs the rights of the queue's owner.
        queue: the name of the queue to remove.
        startup_timeout: seconds to wait for a server that is not up yet.
        owner_role: Postgres: the role to set first, as in `upgrade`.

    Raises:
        ConfigurationError: there is no queue of this name, the URL is wrong, or something else depends on the queue.
        SchemaNotReady: the queue has a revision that this version of the package does not know.
        BackendUnavailable: the database cannot be reached, or another migration did not end.
        AuthenticationFailed: the database refused the credentials, or the user lacks a right.
    """
    settings = settings_for(url, queue, _owner(owner_role))
    configuring.check_kept(settings)
    settings.manifest.loaded()
    retried(lambda: dropping.drop(settings), startup_timeout)


def contents(url: str, *, queue: str = DEFAULT_QUEUE, startup_timeout: float = 0.0) -> QueueStatus | None:
    """Return what `drop` would remove. None if what is left of the queue is too incomplete to be counted.

    Raises:
        ConfigurationError: there is no queue of this name, or the URL is wrong. The other errors are those of `drop`.
    """
    settings = settings_for(url, queue, {})
    configuring.check_kept(settings)
    settings.manifest.loaded()
    retried(lambda: dropping.check_there(settings), startup_timeout)
    return dropping.contents(settings)


def _owner(role: str | None) -> dict[str, str | None]:
    return {} if role is None else {"owner_role": role}
