"""The options of the in-memory backend: there are none."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option


class MemoryOptions(TypedDict, total=False):
    """What `InMemoryTransport.from_url` takes besides: nothing."""


OPTIONS: tuple[Option, ...] = ()
