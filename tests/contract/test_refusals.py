"""Promise 13: what a backend cannot keep it refuses; and errors about a wrong setup say what to do."""

from __future__ import annotations

import asyncio
import contextlib
import math
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import (
    AuthenticationFailed,
    BackendUnavailable,
    ConfigurationError,
    LeaseLost,
    SchemaNotReady,
    UnsupportedByBackend,
)
from fairlane.backends.redis.wire import keys_of
from tests.harness import LONG, Queue, Queues
from tests.harness.calls import every_call
from tests.harness.kits.redis import RedisKit
from tests.servers.base import free_port

pytestmark = pytest.mark.promise(13)


@pytest.mark.lacks("priorities")
async def test_refusal_of_priorities_where_there_are_none(queue: Queue) -> None:
    for refused in (lambda: queue.publish("g", 1, 3), lambda: queue.claim("w", LONG, 1)):
        with pytest.raises(UnsupportedByBackend):
            await refused()
    assert await queue.claim("w", LONG) is None


@pytest.mark.lacks("head_start")
async def test_refusal_of_a_head_start_where_there_is_none(queues: Queues) -> None:
    with pytest.raises((UnsupportedByBackend, ConfigurationError)):
        await queues.make(head_start=0)


async def test_refusal_of_options_that_a_backend_does_not_have(queue: Queue) -> None:
    with pytest.raises(ConfigurationError, match="no_such_option"):
        await queue.another(no_such_option=1)


async def test_refusal_of_a_queue_that_is_not_migrated(queues: Queues) -> None:
    """The error names the command to run, and nothing is created."""
    queue = await queues.make()
    if queue.caps.reach == "process":
        pytest.skip("declared: a queue in memory is made when it is first used")
    name = queues.fresh_name()
    with pytest.raises(SchemaNotReady) as caught:
        await queues.open(name)
    assert (caught.value.queue, caught.value.found) == (name, None)
    assert f"fairlane migrate --queue {name}" in str(caught.value)


async def test_refusal_of_a_queue_that_was_removed_meanwhile(queues: Queues) -> None:
    queue = await queues.make()
    if queue.caps.reach == "process":
        pytest.skip("declared: a queue in memory is made when it is first used")
    await queue.publish("g", 1)
    lease = await queue.get()
    await queue.call_blocking(fairlane.migrate.downgrade, queue.kit.url(queue.name), queue=queue.name, revision="base")
    for use in every_call(queue, lease).values():
        with pytest.raises(SchemaNotReady):
            await use()
    await queue.call_blocking(fairlane.migrate.upgrade, queue.kit.url(queue.name), queue=queue.name)
    await queue.publish("g", 2)
    assert await queue.drain() == [("g", 2)], "the transport did not recover"


@pytest.mark.backends("redis", "redis-cluster")
async def test_refusal_of_a_queue_whose_keys_are_gone_but_not_its_functions(queue: Queue) -> None:
    """FLUSHALL does that, for example. Guards against messages that are accepted into a queue which no other client
    finds."""
    await queue.publish("g", 1)
    lease = await queue.get()

    def forget() -> None:
        assert isinstance(queue.kit, RedisKit)
        with queue.kit.connect(queue.name) as client:
            client.delete(*keys_of(queue.name))

    await queue.call_blocking(forget)
    for use in (lambda: queue.publish("g", 2), lambda: queue.claim("w", LONG), lambda: queue.publish("h", 3)):
        with pytest.raises(SchemaNotReady):
            await use()
    with pytest.raises((LeaseLost, SchemaNotReady)):
        await queue.ack(lease)
    with pytest.raises(SchemaNotReady):
        await queue.another()
    assert await queue.leftovers() == {}
    await queue.call_blocking(fairlane.migrate.upgrade, queue.kit.url(queue.name), queue=queue.name)
    await queue.publish("g", 4)
    assert await queue.drain() == [("g", 4)]


@pytest.mark.backends("redis")
async def test_refusal_of_a_queue_that_was_removed_from_one_of_two_databases(queue: Queue) -> None:
    """The functions are still there, for the other one."""
    head, _, _ = queue.kit.url(queue.name).rpartition("/")
    other = f"{head}/7"
    await queue.call_blocking(fairlane.migrate.upgrade, other, queue=queue.name)
    there = await queue.another(url=other)
    await queue.publish("g", 1)
    await queue.call_blocking(fairlane.migrate.downgrade, other, queue=queue.name, revision="base")
    for use in (lambda: there.publish("g", 2), lambda: there.claim("w", LONG)):
        with pytest.raises(SchemaNotReady):
            await use()
    assert await queue.drain() == [("g", 1)]


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    "option",
    [
        *({"max_connections": value} for value in (0, -1, "x", None, True, 1.5, 10**9)),
        *({"timeout": value} for value in (0, -1, "x", None, math.nan, math.inf)),
        *({"prepare_threshold": value} for value in (-1, "x", True)),
    ],
    ids=repr,
)
async def test_refusal_of_impossible_options_of_postgres(queue: Queue, option: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        await queue.another(**option)


@pytest.mark.backends("postgres", "redis", "redis-cluster")
async def test_refusal_of_impossible_options_in_urls(queue: Queue) -> None:
    """Each raises one typed error, from transports and from migrations."""
    url = queue.kit.url(queue.name)
    wrong = {"postgres": ["connect_timeout=x", "connect_timeout=nan", "connect_timeout=1e999"]}.get(
        queue.caps.backend,
        ["socket_timeout=-1", "socket_timeout=nan", "socket_timeout=0", "socket_connect_timeout=-1", "protocol=x"],
    )
    for option in wrong:
        for attempt in (
            lambda there: queue.another(url=there),
            lambda there: queue.call_blocking(fairlane.migrate.upgrade, there, queue=queue.name),
        ):
            with pytest.raises(ConfigurationError):
                await attempt(f"{url}?{option}")


UNREACHABLE = {
    "postgres": "postgresql://user:secret-word@127.0.0.1:{port}/db",
    "redis": "redis://user:secret-word@127.0.0.1:{port}/0",
    "rqlite": "rqlite://user:secret-word@127.0.0.1:{port}",
    "libsql": "libsql+http://:secret-word@127.0.0.1:{port}",
    "mongo": "mongodb://user:secret-word@127.0.0.1:{port}/db",
    "sqs": "sqs://user:secret-word@eu-central-1/?endpoint=http://127.0.0.1:{port}",
}


@pytest.mark.backends("postgres", "redis", "redis-cluster", "libsql", "rqlite", "mongo", "sqs")
async def test_refused_connections_are_one_typed_error_without_the_password(queue: Queue) -> None:
    url = UNREACHABLE[queue.caps.backend].format(port=free_port())
    if "cluster" in queue.kit.url(queue.name):
        url = url.replace("redis:", "redis+cluster:").removesuffix("/0")
    with pytest.raises(BackendUnavailable) as caught:
        await queue.another(url=url, startup_timeout=0.1)
    assert "127.0.0.1" in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:  # a traceback shows the causes too
        assert "secret-word" not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__


@pytest.mark.backends("postgres", "redis", "mongo")
async def test_refused_credentials_are_one_typed_error_without_the_password(queue: Queue) -> None:
    head, _, rest = queue.kit.url(queue.name).partition("://")
    address = rest.rpartition("@")[2]
    with pytest.raises(AuthenticationFailed) as caught:
        await queue.another(url=f"{head}://nobody:secret-word@{address}", startup_timeout=0.1)
    assert "secret-word" not in str(caught.value)


@pytest.mark.backends("redis")
async def test_refusal_of_a_redis_that_would_evict_messages(queues: Queues, servers: Any) -> None:
    server = servers("redis", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    queues.kit.server_url = server.url
    with pytest.raises(ConfigurationError, match="noeviction"):
        await queues.make()
    queues.kit.server_url = f"{server.url}?allow_eviction=1"
    queue = await queues.make()
    await queue.publish("g", 1)
    with pytest.raises(ConfigurationError, match="noeviction"):
        await queue.another(url=server.url)
    assert await queue.drain() == [("g", 1)]


@pytest.mark.backends("redis")
async def test_refusal_of_a_database_that_redis_does_not_have(queue: Queue) -> None:
    head, _, _ = queue.kit.url(queue.name).rpartition("/")
    with pytest.raises(ConfigurationError, match="no database of this number"):
        await queue.another(url=f"{head}/9999")
    with pytest.raises(ConfigurationError, match="no database of this number"):
        await queue.call_blocking(fairlane.migrate.upgrade, f"{head}/9999", queue=queue.name)


@pytest.mark.backends("redis", "redis-cluster")
async def test_refusal_of_a_server_that_is_not_redis(queue: Queue) -> None:
    """The port belongs to some other server, which answers at once, but not in Redis's protocol."""

    async def answer(reader: Any, writer: Any) -> None:
        await reader.read(10)
        writer.write(b"\0\xff\xfe no Redis\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        scheme = "redis+cluster" if "cluster" in queue.kit.url(queue.name) else "redis"
        with pytest.raises(BackendUnavailable):
            await queue.another(url=f"{scheme}://127.0.0.1:{port}", startup_timeout=0)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/q.db", "sqlite:///q.db?no_such=1"]
)
async def test_refusal_of_sqlite_urls_that_name_no_file(queue: Queue, url: str) -> None:
    with pytest.raises(ConfigurationError):
        await queue.another(url=url)


@pytest.mark.backends("sqlite")
async def test_refusal_of_a_missing_file_makes_none(queue: Queue, folder: Path) -> None:
    with pytest.raises(SchemaNotReady):
        await queue.another(url=f"sqlite:///{folder}/missing.db", startup_timeout=0)
    assert not (folder / "missing.db").exists()
    with contextlib.suppress(SchemaNotReady):
        await queue.another(url=f"sqlite:///{folder}/queue.db%3Fx")
    assert [path.name for path in folder.iterdir() if "?" in path.name] == []  # noqa: ASYNC240 - no task waits here


async def test_refusal_of_what_memory_cannot_keep_is_not_silent() -> None:
    """A migration makes nothing for memory, so it must not accept a choice that has no effect."""
    with pytest.raises((UnsupportedByBackend, ConfigurationError)):
        fairlane.migrate.upgrade("memory://", queue="some_queue", head_start=0)


@pytest.mark.parametrize("kind", [fairlane.InMemoryTransport, fairlane.AsyncInMemoryTransport])
def test_refusal_of_something_that_is_not_a_store(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="MemoryStore"):
        kind("memory://")
