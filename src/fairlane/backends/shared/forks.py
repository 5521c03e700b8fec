"""Connections and forks: a child process does not use or close the connections of its parent. It opens its own."""

from __future__ import annotations

import os
import threading
import weakref

from fairlane.errors import ConfigurationError

FORK_TIMEOUT = 10.0
"""Seconds for which a fork waits for a call in another thread to end."""


class ForkAware:
    """An object with connections. Its methods are called at every fork after `register`.

    These calls cost nothing while there is no fork. Comparing process ids would take time in every call.
    """

    def before_fork(self) -> None:
        """Prepare for a fork, in the parent. A lock that is taken here is released in `after_fork_in_parent`."""

    def after_fork_in_parent(self) -> None:
        """Continue in the parent after a fork."""

    def after_fork_in_child(self) -> object:
        """Forget all open connections and locks in the child, and return them: they belong to the parent."""


class ForkAwareWithLock(ForkAware):
    """An object with a lock that no thread holds during a fork.

    A child process would get a held lock locked, and no thread of the child could release it.
    """

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
    """The only process that may use a connection of the application. Two processes would read each other's answers.

    Args:
        backend: name of the backend, for the message.
        resource: what each process should open instead, for the message.
        owner: id of the process; None means the first process that uses the connection.
    """

    def __init__(self, backend: str, resource: str, owner: int | None = None) -> None:
        self._backend = backend
        self._resource = resource
        self._owner = owner

    def check(self) -> None:
        """Check that this process may use the connection.

        Raises:
            ConfigurationError: this is a forked child, and the connection belongs to its parent.
        """
        process = os.getpid()
        if self._owner is None:
            self._owner = process
        if self._owner != process:
            raise ConfigurationError(
                f"connections of {self._backend} cannot be used after a fork: let each process open {self._resource} "
                "and make a transport from it"
            )


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_forking: list[ForkAware] = []
_of_parents: list[object] = []
"""The connections of parents, kept in a child until its end. Garbage collection would close them for the parent too."""


def register(holder: ForkAware) -> None:
    """Call the methods of an object at every fork from now on."""
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
