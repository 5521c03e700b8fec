"""Servers that do not answer, or that are gone: calls end in time, and their errors say what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import fairlane
from fairlane import BackendUnavailable
from tests.backends.shared.silence import (
    SLACK,
    assert_a_cancelled_call_harms_no_other,
    assert_a_process_that_closes_nothing_ends_at_once,
)
from tests.harness import Queue
from tests.harness.calls import every_call
from tests.harness.proxy import Proxy
from tests.harness.waiting import at_most

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.promise(9)]

TIMEOUT = 1.0


@pytest.fixture
def proxy(queue: Queue) -> Iterator[Proxy]:
    port = queue.kit.url(queue.name).partition("?")[0].rstrip("/").rpartition(":")[2]
    with Proxy(int(port)) as made:
        yield made


def url(proxy: Proxy) -> str:
    return f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"


async def test_a_silent_server_ends_every_call_within_its_timeout(queue: Queue, proxy: Proxy, capfd: Any) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await silenced.publish("g", 0)
    lease = await silenced.get()
    proxy.silence()
    for name, call in every_call(silenced, lease).items():
        known = "is not known" if name in ("claim", "ack", "nack", "extend") else "nothing was changed"
        with at_most(TIMEOUT + SLACK), pytest.raises(BackendUnavailable, match=known):
            await call()
    with at_most(TIMEOUT + SLACK):
        await silenced.close()
    assert capfd.readouterr().err == ""


async def test_a_server_that_is_silent_from_the_start_is_given_up_within_startup_timeout(
    queue: Queue, proxy: Proxy
) -> None:
    proxy.silence()
    with at_most(TIMEOUT + SLACK), pytest.raises(BackendUnavailable, match="nothing was changed"):
        await queue.owner.open(queue.name, url=url(proxy), startup_timeout=TIMEOUT)


@pytest.mark.twins("sync")
async def test_a_migration_gives_up_a_silent_server_in_time(queue: Queue, proxy: Proxy) -> None:
    proxy.silence()
    for act in (fairlane.migrate.upgrade, fairlane.migrate.status):
        with at_most(2 * TIMEOUT + SLACK), pytest.raises(BackendUnavailable):
            await queue.call_blocking(act, f"{url(proxy)}&timeout={TIMEOUT}", queue=queue.name)


@pytest.mark.twins("async")
async def test_a_cancelled_call_ends_at_once_and_harms_no_other(queue: Queue, proxy: Proxy) -> None:
    await assert_a_cancelled_call_harms_no_other(queue, proxy, url(proxy))


async def test_a_server_that_refuses_connections_has_certainly_changed_nothing(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&serverSelectionTimeoutMS=300", timeout=TIMEOUT)
    proxy.close()
    await asyncio.sleep(0)
    with pytest.raises(BackendUnavailable):
        await silenced.publish("g", 1)  # this request may have been sent before the connection broke
    with at_most(TIMEOUT + SLACK), pytest.raises(BackendUnavailable, match="nothing was changed"):
        await silenced.publish("g", 1)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_lost_answer_is_an_error_that_says_unknown(queue: Queue, proxy: Proxy, moment: Any) -> None:
    broken = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await broken.publish("g", 0)
    proxy.break_next(f"{queue.name}_messages".encode(), moment)
    with pytest.raises(BackendUnavailable, match="is not known"):
        await broken.publish("g", 1)


async def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(queue: Queue, proxy: Proxy) -> None:
    """pymongo checks connections that were idle for more than a second."""
    idle = await queue.owner.open(queue.name, url=url(proxy), timeout=10)
    await idle.publish("g", 0)
    await asyncio.sleep(1.1)
    proxy.cut()
    await asyncio.sleep(0.1)
    await idle.publish("g", 1)


@pytest.mark.parametrize("silent", [False, True], ids=["answering", "silent"])
async def test_a_transport_that_was_never_closed_lets_its_process_end_at_once(
    queue: Queue, proxy: Proxy, silent: bool
) -> None:
    await assert_a_process_that_closes_nothing_ends_at_once(queue, proxy, url(proxy), silent=silent)


async def test_a_shorter_timeout_of_the_url_counts(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&timeoutMS=300")
    proxy.silence()
    with at_most(0.3 + SLACK), pytest.raises(BackendUnavailable):
        await silenced.claim("w", 30)


async def test_the_option_may_stand_in_the_url(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&timeout=0.3")
    proxy.silence()
    with at_most(0.3 + SLACK), pytest.raises(BackendUnavailable):
        await silenced.claim("w", 30)
    assert fairlane.capabilities(url(proxy)).backend == "mongo"
