"""Remove a queue with everything that it holds, also if an earlier removal was killed; count what would be lost."""

from __future__ import annotations

from fairlane.backends.targets import LedgerTarget
from fairlane.contract import check_queue
from fairlane.errors import ConfigurationError, QueueDamaged, SchemaNotReady
from fairlane.migrate.configuring import check_known
from fairlane.migrate.settings import Settings
from fairlane.model import QueueStatus
from fairlane.program import run
from fairlane.urls import host_of


def contents(settings: Settings) -> QueueStatus | None:
    """Return what a queue holds. None if it is not there, or so incomplete that nothing can be counted.

    The revision does not matter, since the views of each revision count.
    """
    backend = settings.manifest.loaded()
    queue = check_queue(settings.choices.queue)
    core, executor = backend.core(queue), backend.executor.from_url(settings.url, queue)
    try:
        if run(core.revision(), executor.execute) is None:
            return None
        return run(core.queue_status(), executor.execute)
    except (SchemaNotReady, QueueDamaged):
        return None
    finally:
        executor.close()


def is_there(settings: Settings) -> bool:
    """Return whether there is a queue, or anything that is left of it.

    Raises:
        SchemaNotReady: it has a revision that this version of the package does not know.
    """
    backend, queue = settings.manifest.loaded(), settings.choices.queue
    executor = backend.executor.from_url(settings.url, queue)
    try:
        revision = run(backend.core(queue).revision(), executor.execute)
    finally:
        executor.close()
    if revision is not None:
        check_known(settings, revision.found, revision.serves)
        return True
    target = settings.target()
    if not isinstance(target, LedgerTarget):
        return False  # a transaction leaves nothing half done
    try:
        return target.read() is not None or target.remains()
    finally:
        target.close()


def check_there(settings: Settings) -> None:
    """Check that there is a queue, or anything that is left of it.

    Raises:
        ConfigurationError: there is nothing to remove.
        SchemaNotReady: it has a revision that this version of the package does not know.
    """
    if not is_there(settings):
        raise ConfigurationError(
            f"there is no queue {settings.choices.queue!r} at {host_of(settings.url)}, so there is nothing to remove"
        )


def drop(settings: Settings) -> None:
    """Remove a queue, or what is left of it.

    Raises:
        ConfigurationError: there is nothing to remove.
        SchemaNotReady: it has a revision that this version of the package does not know.
    """
    from fairlane.migrate import downgrade

    check_there(settings)
    role = settings.choices.owner_role
    downgrade(settings.url, queue=settings.choices.queue, revision="base", **({"owner_role": role} if role else {}))
    target = settings.target()
    if isinstance(target, LedgerTarget):
        _remove_rest(target)


def _remove_rest(target: LedgerTarget) -> None:
    """Remove what a removal has left that was killed. No step of a migration does, since there is no revision."""
    try:
        if target.read() is not None or not target.remains():
            return
        with target.lock():
            if target.read() is None:
                target.apply((), None, serves=None, stamp=False)
    finally:
        target.close()
