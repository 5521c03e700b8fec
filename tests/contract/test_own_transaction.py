"""Where `transactional_publish` is declared, a publish is part of the transaction of the application."""

from __future__ import annotations

import pytest

from fairlane import Message
from tests.harness import Queue, Queues


@pytest.mark.needs("transactional_publish")
@pytest.mark.promise(1)
async def test_own_transaction_decides_whether_an_event_is_published(queue: Queue, queues: Queues) -> None:
    """Guards against a publish that commits by itself, and against a declaration that no test proves."""
    connection = await queue.call(queue.kit.connection, queue.name, queue.twin)
    queues.afterwards(connection.close)
    mine = queues.over(queue.name, connection)
    await mine.publish("g", "lost")
    await mine.call(connection.rollback)
    await mine.publish("g", "first")
    await mine.publish("g", "second")
    assert (await queue.status()).messages == 0, "it was visible before the commit"
    await mine.call(connection.commit)
    assert await queue.drain() == [("g", "first"), ("g", "second")]


@pytest.mark.needs("transactional_publish")
@pytest.mark.promise(1)
async def test_own_transaction_decides_whether_a_batch_is_published(queue: Queue, queues: Queues) -> None:
    connection = await queue.call(queue.kit.connection, queue.name, queue.twin)
    queues.afterwards(connection.close)
    mine = queues.over(queue.name, connection)
    await mine.publish_many([Message("g", "lost"), Message("h", "lost")])
    await mine.call(connection.rollback)
    await mine.publish("g", "first")
    await mine.publish_many([Message("g", "second"), Message("h", "third")])
    assert (await queue.status()).messages == 0, "it was visible before the commit"
    await mine.call(connection.commit)
    assert sorted(await queue.drain()) == [("g", "first"), ("g", "second"), ("h", "third")]
