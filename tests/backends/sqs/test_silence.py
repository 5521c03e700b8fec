"""Servers that do not answer, or that are gone: calls end in time, and their errors say what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import BackendUnavailable
from tests.backends.shared.silence import (
    SLACK,
    assert_a_cancelled_call_harms_no_other,
    assert_a_process_that_closes_nothing_ends_at_once,
)
from tests.harness import Queue
from tests.harness.proxy import Proxy
from tests.harness.waiting import at_most

pytestmark = [pytest.mark.backends("sqs"), pytest.mark.promise(9)]

TIMEOUT = 3.0


@pytest.fixture
def proxy(queue: Any) -> Iterator[Proxy]:
    with Proxy(int(queue.kit.url(queue.name).rpartition(":")[2])) as made:
        yield made


def url(proxy: Proxy) -> str:
    return f"sqs://any:any@elasticmq/?endpoint=http://127.0.0.1:{proxy.port}"


async def test_a_silent_server_ends_every_call_within_its_timeout(queue: Queue, proxy: Proxy, capfd: Any) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await silenced.publish("g", 0)
    lease = await silenced.get()
    proxy.silence()
    for call in (
        silenced.publish("g", 1),
        silenced.claim("w", 30),
        silenced.extend(lease, 30),
        silenced.nack(lease),
    ):
        with at_most(TIMEOUT + SLACK), pytest.raises(BackendUnavailable, match="is not known"):
            await call
    with at_most(SLACK):
        await silenced.close()
    assert capfd.readouterr().err == ""


async def test_a_server_that_is_silent_from_the_start_is_given_up_within_startup_timeout(
    queue: Queue, proxy: Proxy
) -> None:
    proxy.silence()
    with at_most(1.0 + SLACK), pytest.raises(BackendUnavailable):
        await queue.owner.open(queue.name, url=url(proxy), startup_timeout=1.0)


@pytest.mark.twins("async")
async def test_a_cancelled_call_ends_at_once_and_harms_no_other(queue: Queue, proxy: Proxy) -> None:
    await assert_a_cancelled_call_harms_no_other(queue, proxy, url(proxy))


async def test_a_server_that_refuses_connections_has_certainly_changed_nothing(queue: Queue, proxy: Proxy) -> None:
    gone = await queue.owner.open(queue.name, url=url(proxy))
    proxy.close()
    await asyncio.sleep(0.1)  # until the asyncio client has seen the end of the connection, too
    for call in (gone.publish("g", 1), gone.claim("w", 30)):
        with at_most(2.0 + SLACK), pytest.raises(BackendUnavailable, match="nothing was changed"):
            await call


async def test_a_lost_answer_is_an_error_that_says_unknown(queue: Queue, proxy: Proxy) -> None:
    broken = await queue.owner.open(queue.name, url=url(proxy))
    await broken.publish("g", 0)
    lease = await broken.get()
    proxy.break_next(b"DeleteMessage", "after")
    with pytest.raises(BackendUnavailable, match="is not known"):
        await broken.ack(lease)


async def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(queue: Queue, proxy: Proxy) -> None:
    idle = await queue.owner.open(queue.name, url=url(proxy))
    await idle.publish("g", 0)
    lease = await idle.get()
    for call in (idle.extend(lease, 30), idle.ack(lease)):
        proxy.cut()
        await asyncio.sleep(0.1)
        await call


async def test_a_transport_that_was_never_closed_lets_its_process_end_at_once(queue: Queue, proxy: Proxy) -> None:
    await assert_a_process_that_closes_nothing_ends_at_once(queue, proxy, url(proxy))
