"""The in-memory backend, for tests and for programs with a single process."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.memory.options import OPTIONS
from fairlane.backends.stored import Call, Rows
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.memory.core import MemoryCore
    from fairlane.backends.memory.executor import AsyncMemoryExecutor, MemoryExecutor

    return Backend(MemoryCore, MemoryExecutor, AsyncMemoryExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.memory.transports import AsyncInMemoryTransport, InMemoryTransport

    return InMemoryTransport, AsyncInMemoryTransport


MANIFEST = Manifest(
    name="memory",
    schemes=("memory",),
    default_url="memory://",
    options=OPTIONS,
    load=_load,
    transports=_transports,
    capabilities=Capabilities(
        "memory",
        server="nothing",
        reach="process",
        durability="none",
        clock="process",
        atomic_batches=False,
    ),
)
