"""A client of the application works in one event loop. In another loop a call is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pymongo
import pytest

from fairlane import ConfigurationError
from fairlane.backends.mongo.transports import AsyncMongoTransport
from tests.contract.test_loops import in_thread
from tests.harness import Queue

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("async"), pytest.mark.promise(9)]


async def test_a_client_of_the_application_in_another_loop_is_refused_before_anything_is_sent(queue: Queue) -> None:
    client: Any = pymongo.AsyncMongoClient(queue.kit.url(queue.name))
    given: AsyncMongoTransport[Any] = AsyncMongoTransport(client, queue=queue.name)
    await given.publish("g", 1)
    with pytest.raises(ConfigurationError, match="one event loop only"):
        in_thread(lambda: given.publish("g", 2))
    await given.publish("g", 3)
    assert [event for _, event in await queue.drain()] == [1, 3]
    await client.close()


async def test_a_client_that_the_application_used_in_another_loop_is_refused_too(queue: Queue) -> None:
    client: Any = pymongo.AsyncMongoClient(queue.kit.url(queue.name))
    await client.admin.command("ping")
    with pytest.raises(ConfigurationError, match="one event loop only"):
        in_thread(lambda: AsyncMongoTransport(client, queue=queue.name).publish("g", 2))
    assert await queue.drain() == []
    await client.close()
