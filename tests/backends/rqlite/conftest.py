"""Queues on a stand-in cluster that belongs to the test and can fail on purpose. Every test runs for both twins.

The contract suite runs on rqlite as on every other backend. The tests here are about what can fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Queue, Queues
from tests.harness.kits.rqlite import OwnRqliteKit
from tests.servers import rqlite
from tests.servers.rqlite import Cluster


@pytest.fixture(params=["sync", "async"])
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rqlite.private(nodes=3, auth="worker:secret") as made:
        yield made


@pytest.fixture
async def queues(cluster: Cluster, twin: str, folder: Path) -> AsyncIterator[Queues]:
    made = Queues(OwnRqliteKit(cluster.url), twin, folder)  # type: ignore[arg-type]
    yield made
    await made.close()


@pytest.fixture
async def queue(queues: Queues, cluster: Cluster) -> Queue:
    """A fresh queue. The list of requests that the cluster has seen is empty."""
    made = await queues.make()
    cluster.forget_seen()
    return made


def posts(cluster: Cluster) -> list[tuple[int, str]]:
    """The node and the endpoint of each request so far."""
    return [(seen.node, seen.path) for seen in cluster.seen]


def sent(cluster: Cluster, endpoint: str = "execute") -> int:
    """The number of requests to an endpoint so far."""
    return sum(seen.path == f"/db/{endpoint}" for seen in cluster.seen)


def executor(queue: Queue) -> Any:
    """The driver's side of a queue."""
    return queue.transport._executor
