"""The lock of migrations on databases where it is an entry that expires unless its holder renews it."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from fairlane.backends.targets import LedgerTarget
from fairlane.errors import BackendUnavailable

LOCK_SECONDS = 10
"""Seconds after which the lock expires unless it is renewed, so that a killed migration blocks others only briefly."""

WAIT_SECONDS = 60
"""Seconds for which a migration waits for other migrations."""

SILENT_SECONDS = 1.0
"""Seconds after which the log says what a migration waits for."""

LOOK_SECONDS = 0.05
"""Seconds between two tries to take the lock."""

_log = logging.getLogger("fairlane.migrate")


class LockTarget(LedgerTarget):
    """A target that takes a lock for each migration.

    Args:
        queue: name of the queue.
        backend: name of the backend, for messages.
        host: address of the server, for messages.
        lock_name: name of the entry that is the lock, for messages.
    """

    def __init__(self, queue: str, backend: str, host: str, lock_name: str) -> None:
        self._queue = queue
        self._backend = backend
        self._host = host
        self._lock_name = lock_name

    @abstractmethod
    def take_lock(self) -> bool:
        """Take the lock for `LOCK_SECONDS` if it is free or has expired. Return whether it was taken."""

    @abstractmethod
    def renew_lock(self) -> bool:
        """Renew the lock for `LOCK_SECONDS`. Return False if it does not belong to this migration any more."""

    @abstractmethod
    def free_lock(self) -> None:
        """Remove the lock if it still belongs to this migration."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of this queue. Wait at most `WAIT_SECONDS` for other migrations."""
        began = time.monotonic()
        logged = False
        while not self.take_lock():
            waited = time.monotonic() - began
            if waited > WAIT_SECONDS:
                reason = f"other migrations have held the lock, {self._lock_name}, for {WAIT_SECONDS} seconds"
                raise BackendUnavailable(self._backend, self._host, f"{reason} (nothing was changed)")
            if waited > SILENT_SECONDS and not logged:
                logged = True
                _log.warning(
                    "waiting for another migration of queue %s, which holds the lock, %s; if it has ended, the lock "
                    "expires in %d seconds at most",
                    *(self._queue, self._lock_name, LOCK_SECONDS),
                )
            time.sleep(LOOK_SECONDS)
        try:
            yield
        finally:
            self.free_lock()

    def keep_lock(self) -> None:
        """Renew the lock, so that it does not expire.

        Raises:
            BackendUnavailable: another migration has the lock.
        """
        if not self.renew_lock():
            reason = f"a step took so long that another migration has taken the lock, {self._lock_name}: migrate again"
            raise BackendUnavailable(self._backend, self._host, reason)
