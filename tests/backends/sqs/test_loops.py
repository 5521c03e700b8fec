"""A client of the application works in one event loop. In another loop a call is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from fairlane import ConfigurationError
from fairlane.backends.sqs.address import client_arguments, parse
from fairlane.backends.sqs.transports import AsyncSqsTransport
from tests.contract.test_loops import in_thread

pytestmark = [pytest.mark.backends("sqs"), pytest.mark.twins("async"), pytest.mark.promise(9)]


async def test_a_client_of_the_application_in_another_loop_is_refused_before_anything_is_sent(queue: Any) -> None:
    arguments = client_arguments(parse(queue.kit.url(queue.name), {}), AioConfig, 10.0)
    async with AioSession().create_client("sqs", **arguments) as client:
        given: AsyncSqsTransport[Any] = AsyncSqsTransport(client, queue=queue.name)
        await given.publish("g", 1)
        with pytest.raises(ConfigurationError, match="one event loop only"):
            in_thread(lambda: given.publish("g", 2))
        await given.publish("g", 3)
    assert [event for _, event in await queue.drain()] == [1, 3]
