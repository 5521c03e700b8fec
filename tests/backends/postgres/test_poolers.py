"""Behind a pooler each transaction may run in another server connection: nothing may depend on that connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import psycopg_pool
import pytest

from fairlane import BackendUnavailable, LeaseLost
from fairlane.backends.postgres.sessions import OwnAsyncConnection, OwnConnection
from tests.harness import LONG, Queue, Queues

pytestmark = [pytest.mark.backends("pgbouncer"), pytest.mark.promise(1, 2)]

BEYOND_THE_THRESHOLD = 40
"""More calls than psycopg makes before it prepares a statement, and more than a new transport needs to settle."""


def in_mode(url: str, mode: str, **query: str) -> str:
    """The URL of the pooler's database that uses this pooling mode."""
    options = "&".join(f"{name}={value}" for name, value in query.items())
    return f"{url.rpartition('/')[0]}/{mode}?{options}"


async def no_queue_gets_what_was_meant_for_the_other(one: Queue, two: Queue) -> None:
    """Run all operations on both queues at once, and check which queue has which messages afterwards."""

    async def work(queue: Queue) -> None:
        for number in range(BEYOND_THE_THRESHOLD):
            await queue.publish(queue.name, queue.name)
            lease = await queue.extend(await queue.get(), LONG)
            await (queue.nack(lease) if number % 2 else queue.ack(lease))

    await asyncio.gather(*(work(queue) for queue in (one, two)))
    for queue in (one, two):
        found = await queue.drain()
        assert found == [(queue.name, queue.name)] * (BEYOND_THE_THRESHOLD // 2)


async def test_two_queues_of_own_connections_never_meet(queues: Queues) -> None:
    """Guards against two clients that give the same name to different prepared statements."""
    await no_queue_gets_what_was_meant_for_the_other(await queues.make(), await queues.make())


@pytest.fixture
def given(queues: Queues) -> Callable[[str, str], Awaitable[Any]]:
    """A function that opens pools and connections as an application does, with the defaults of psycopg."""
    sync = queues.twin == "sync"

    async def make(kind: str, url: str) -> Any:
        opened: Any = None
        opening: Any
        if kind == "pool":
            opened = (psycopg_pool.ConnectionPool if sync else psycopg_pool.AsyncConnectionPool)(url, open=False)
            opening = opened.open()
        else:
            opening = (psycopg.Connection if sync else psycopg.AsyncConnection).connect(url, autocommit=True)
        found = opening if sync else await opening
        made = opened or found
        queues.afterwards(made.close)
        return made

    return make


@pytest.mark.parametrize("kind", ["pool", "connection"])
async def test_two_queues_of_given_connections_never_meet(queues: Queues, given: Any, kind: str) -> None:
    pair = []
    for _ in range(2):
        made = await queues.make()
        pair.append(queues.over(made.name, await given(kind, queues.kit.url(made.name))))
    await no_queue_gets_what_was_meant_for_the_other(*pair)


async def test_two_queues_never_meet_behind_a_pooler_that_was_not_detected(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid of the handshake looks like that of the server process, so the pooler is not detected. Guards against two
    clients that use the same names for prepared statements."""

    def learn(self: Any, found: Any, threshold: int | None) -> bool:
        self.threshold = threshold
        return False

    for kind in (OwnConnection, OwnAsyncConnection):
        monkeypatch.setattr(kind, "learn", learn)
    await no_queue_gets_what_was_meant_for_the_other(await queues.make(), await queues.make())


async def test_a_stricter_default_isolation_of_the_server_does_not_matter(queues: Queues) -> None:
    """Guards against a setting of the session, which would also apply to transactions of another client."""
    queue = await queues.make()
    url = in_mode(queue.kit.url(queue.name), "strict")
    mine = await queues.open(queue.name, url=url)
    for number in range(BEYOND_THE_THRESHOLD):
        await mine.publish("g", number)
    lease = await mine.get()
    await mine.ack(lease)
    with pytest.raises(LeaseLost):
        await mine.ack(lease)
    await asyncio.gather(*(mine.publish("h", 1) for _ in range(10)))
    assert len(await mine.drain()) == BEYOND_THE_THRESHOLD - 1 + 10
    with psycopg.connect(url, autocommit=True) as other:
        assert other.execute("show default_transaction_isolation").fetchone() == ("serializable",)


@pytest.mark.xdist_group("session-pooling")
async def test_session_pooling_with_two_server_connections_blocks_no_call(queues: Queues) -> None:
    """Guards against calls that wait for a third connection while the first two become free again and again."""
    queue = await queues.make()
    crowd = await queues.open(queue.name, url=in_mode(queue.kit.url(queue.name), "session"))
    began = time.monotonic()

    async def publish(number: int) -> None:
        for each in range(25):
            await crowd.publish(f"g{number}", each)

    await asyncio.gather(*(publish(number) for number in range(8)))
    assert time.monotonic() - began < 20
    assert (await queue.status()).messages == 25 * 8


@pytest.mark.xdist_group("session-pooling")
async def test_a_pooler_with_no_connection_to_give_is_one_typed_error(queues: Queues) -> None:
    """Two other clients hold both server connections for the whole time."""
    queue = await queues.make()
    url = in_mode(queue.kit.url(queue.name), "session")
    with psycopg.connect(url) as one, psycopg.connect(url) as two:
        for each in (one, two):
            each.execute("select 1")
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="or a pooler") as caught:
            await queues.open(queue.name, url=url, timeout=1.5, startup_timeout=1)
        assert time.monotonic() - began < 10
        assert "nothing was changed" in str(caught.value)
