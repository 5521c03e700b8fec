"""Connections and forks: a child neither uses nor closes the connections of its parent, it opens its own."""

from __future__ import annotations

import os
import threading
import weakref

from fairlane.errors import ConfigurationError

FORK_TIMEOUT = 10.0
"""Seconds for which a fork waits for a call in another thread to end."""


class ForkAware:
    """Holds connections, and is told of every fork once it is registered.

    To be told costs nothing; to compare process ids in every call would.
    """

    def before_fork(self) -> None:
        """Prepare, in the parent. A lock that is taken here is released in `after_fork_in_parent`."""

    def after_fork_in_parent(self) -> None:
        """Go on in the parent."""

    def after_fork_in_child(self) -> object:
        """Forget in the child all that was open, locks included, and return it: it belongs to the parent."""


class ForkAwareWithLock(ForkAware):
    """Has a lock that no thread holds while the process forks: a child that gets it locked has nobody to release it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locked_for_fork = False
        register(self)

    def before_fork(self) -> None:
        """Wait until no thread holds the lock."""
        self._locked_for_fork = self._lock.acquire(timeout=FORK_TIMEOUT)

    def after_fork_in_parent(self) -> None:
        """Release the lock."""
        if self._locked_for_fork:
            self._lock.release()

    def after_fork_in_child(self) -> object:
        """Make a new lock."""
        self._lock = threading.Lock()
        return None


class OwnerProcess:
    """The one process that may use a connection of the application: two would read each other's answers.

    Args:
        backend: for the message.
        what: what each process should open, for the message.
        owner: the process; None is the one that uses it first.
    """

    def __init__(self, backend: str, what: str, owner: int | None = None) -> None:
        self._backend = backend
        self._what = what
        self._owner = owner

    def check(self) -> None:
        """Refuse a forked child.

        Raises:
            ConfigurationError: the connection was in use before the fork.
        """
        process = os.getpid()
        if self._owner is None:
            self._owner = process
        if self._owner != process:
            raise ConfigurationError(
                f"connections of {self._backend} do not survive a fork: let each process open {self._what}, and make a "
                "transport of it"
            )


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_forking: list[ForkAware] = []
_of_parents: list[object] = []
"""Kept for good in a child: what is collected is closed, and the parent still uses it."""


def register(holder: ForkAware) -> None:
    """Tell it of every fork from now on."""
    _registered.add(holder)


def _before() -> None:
    _forking[:] = _registered
    for holder in _forking:
        holder.before_fork()


def _in_parent() -> None:
    while _forking:
        _forking.pop().after_fork_in_parent()


def _in_child() -> None:
    while _forking:
        _of_parents.append(_forking.pop().after_fork_in_child())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
