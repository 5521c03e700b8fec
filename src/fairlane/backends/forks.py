"""What a forked child does with its parent's connections: neither use nor close them, and open its own."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

_inherited: list[object] = []
"""Kept for good: what is collected is closed, and the parent still uses it."""


class Heir(Protocol):
    """Holds connections."""

    def leave_to_parent(self) -> object:
        """Be as if nothing had ever been opened, locks included; return what was."""


_heirs: weakref.WeakSet[Heir] = weakref.WeakSet()


def watch(heir: Heir) -> None:
    """Call `heir.leave_to_parent` in every forked child. Asking for the process in every call would cost more."""
    _heirs.add(heir)


def _in_child() -> None:
    for heir in list(_heirs):
        _inherited.append(heir.leave_to_parent())


os.register_at_fork(after_in_child=_in_child)
