"""The in-memory backend has no options."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option


class MemoryOptions(TypedDict, total=False):
    """The options of `InMemoryTransport.from_url`: none."""


OPTIONS: tuple[Option, ...] = ()
