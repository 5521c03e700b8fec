"""What becomes of connections in a fork: a child neither uses nor closes those of its parent, and opens its own."""

from __future__ import annotations

import os
import threading
import weakref

from fairlane.errors import ConfigurationError

PATIENCE = 10.0
"""Seconds for which a fork waits for a call in another thread to end."""

_inherited: list[object] = []
"""Kept for good: what is collected is closed, and the parent still uses it."""


class Heir:
    """Holds connections. Asking for the process in every call would cost more than being told."""

    def before_fork(self) -> None:
        """Make ready, in the parent. Whoever takes a lock here gives it back in `after_fork`."""

    def after_fork(self) -> None:
        """Go on, in the parent."""

    def leave_to_parent(self) -> object:
        """Be, in the child, as if nothing had ever been opened, locks included; return what was."""


class Guarded(Heir):
    """Has a lock that no thread holds while the process forks: the child would inherit it locked, for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        watch(self)

    def before_fork(self) -> None:
        """Wait for whoever is inside."""
        self._stopped = self._lock.acquire(timeout=PATIENCE)

    def after_fork(self) -> None:
        """Let the others in again."""
        if self._stopped:
            self._lock.release()

    def leave_to_parent(self) -> object:
        """Have a lock that nobody holds."""
        self._lock = threading.Lock()
        return None


class OneProcess:
    """Whose an application's connection is: two processes that share one would read each other's answers.

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


_heirs: weakref.WeakSet[Heir] = weakref.WeakSet()
_forking: list[Heir] = []


def watch(heir: Heir) -> None:
    """Tell it of every fork from now on."""
    _heirs.add(heir)


def _before() -> None:
    _forking[:] = _heirs
    for heir in _forking:
        heir.before_fork()


def _in_parent() -> None:
    while _forking:
        _forking.pop().after_fork()


def _in_child() -> None:
    while _forking:
        _inherited.append(_forking.pop().leave_to_parent())


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
