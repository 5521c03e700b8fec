"""The programs of the in-memory backend."""

from __future__ import annotations

from fairlane.backends.stored import ProcedureCore


class MemoryCore(ProcedureCore):
    """The stored operations of a `MemoryStore`, which makes the tokens."""
