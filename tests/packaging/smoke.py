"""Use every backend as far as that is possible without a server. `test_versions` runs it in a separate environment."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import fairlane
from fairlane import AsyncTransport, BackendUnavailable, Transport, migrate
from fairlane.backends import MANIFESTS

NOBODY_THERE = {
    "postgres": "postgresql://u:p@127.0.0.1:1/db",
    "redis": "redis://127.0.0.1:1/0",
    "mongo": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200",
    "libsql": "libsql+http://127.0.0.1:1",
    "rqlite": "rqlite://127.0.0.1:1",
    "sqs": "sqs://key:secret@eu-central-1/?endpoint=http://127.0.0.1:1",
}
"""URLs with a port where no server listens. The clients are made, and try to connect."""

SHORT = {"libsql": {"retry_seconds": 0}, "rqlite": {"retry_seconds": 0}}


def work(queue: Transport) -> None:
    assert queue.publish("g", {"n": 1}) > 0
    lease = queue.claim("w", 30)
    assert lease is not None
    assert lease.event == {"n": 1}
    queue.ack(queue.extend(lease, 60))
    assert queue.inspect.queue().messages == 0


async def work_async(queue: AsyncTransport) -> None:
    assert await queue.publish("g", {"n": 1}) > 0
    lease = await queue.claim("w", 30)
    assert lease is not None
    assert lease.event == {"n": 1}
    await queue.ack(await queue.extend(lease, 60))
    assert (await queue.inspect.queue()).messages == 0


async def unavailable_async(url: str, **options: Any) -> None:
    try:
        await fairlane.connect_async(url, startup_timeout=0.1, **options)
    except BackendUnavailable:
        return
    raise AssertionError(f"connected to {url}")


def unavailable(url: str, **options: Any) -> None:
    try:
        fairlane.connect(url, startup_timeout=0.1, **options)
    except BackendUnavailable:
        return
    raise AssertionError(f"connected to {url}")


async def asynchronous(url: str) -> None:
    async with await fairlane.connect_async(url, migrate=True) as queue:
        await work_async(queue)


def main(folder: Path) -> None:
    for url in ("memory://", f"sqlite:///{folder}/q.db"):
        with fairlane.connect(url, migrate=True) as queue:
            work(queue)
        asyncio.run(asynchronous(url))
    migrate.downgrade(f"sqlite:///{folder}/q.db", revision="base")
    assert set(NOBODY_THERE) | {"memory", "sqlite"} == set(MANIFESTS)
    for name, url in NOBODY_THERE.items():
        unavailable(url, **SHORT.get(name, {}))
        asyncio.run(unavailable_async(url, **SHORT.get(name, {})))
        assert migrate.script(url), name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("ok")
