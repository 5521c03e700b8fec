"""Faults between the transports and the server end in typed errors, and no call is repeated silently."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import fairlane
from fairlane import migrate
from fairlane.errors import BackendUnavailable, ConfigurationError, LeaseLost, QueueDamaged, SchemaNotReady
from tests.backends.redis.servers import TWINS, VARIABLES, connect, missing, on_client, private
from tests.conftest import require_server
from tests.harness import Queue, Queues
from tests.harness.proxy import Moment, Proxy
from tests.servers.base import free_port
from tests.servers.redis import Redis

Opener = Callable[[str, str], Awaitable[Queue]]


@pytest.fixture
def quiet() -> Iterator[Redis]:
    """A private server with a migrated queue `jobs`, for tests that disturb all clients of a server."""
    with private(*Redis.keeps_data) as server:
        migrate.upgrade(server.url, queue="jobs")
        yield server


@pytest.fixture(params=["url", "client"])
def opened(request: pytest.FixtureRequest, queues: Queues) -> Opener:
    """Opens a transport at a URL, or on a client of the application that repeats failed commands."""

    async def made(url: str, name: str) -> Queue:
        return await queues.open(name, url=url) if request.param == "url" else on_client(queues, url, name)

    return made


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("operation", ["publish", "claim", "ack", "nack", "extend"])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_call_without_an_answer_is_one_error_and_never_repeated(
    opened: Opener, url: str, name: str, operation: str, moment: Moment
) -> None:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        queue = await opened(f"redis://127.0.0.1:{proxy.port}", name)
        for event in (1, 2, 3):
            await queue.publish(f"g{event}", event)
        lease = await queue.get("w", 30)
        arguments: dict[str, tuple[Any, ...]] = {
            "publish": ("g4", 4),
            "claim": ("w", 30),
            "ack": (lease,),
            "nack": (lease, 0),
            "extend": (lease, 60),
        }
        proxy.break_next(f"{name}_{operation}\r\n".encode(), moment)
        with pytest.raises(BackendUnavailable):
            await getattr(queue, operation)(*arguments[operation])
        assert proxy.seen == 1
        await asyncio.sleep(0.05)
        status = await queue.status()
        done = moment == "after"
        assert status.messages == 3 + (done and operation == "publish") - (done and operation == "ack")
        assert status.in_flight == 1 + (done and operation == "claim") - (done and operation in ("ack", "nack"))
        if operation in ("ack", "nack") and done:
            with pytest.raises(LeaseLost):  # the caller tries again; the error means "done or lost"
                await getattr(queue, operation)(*arguments[operation])
        elif operation in ("ack", "nack"):
            await getattr(queue, operation)(*arguments[operation])


@pytest.mark.parametrize("kind", ["url", "client"])
@pytest.mark.parametrize("twin", TWINS)
async def test_killed_connections_cost_one_error_at_most(queues: Queues, quiet: Redis, kind: str) -> None:
    url = quiet.url
    queue = await queues.open("jobs", url=url) if kind == "url" else on_client(queues, url, "jobs")
    await queue.publish("g", 1)
    lease = await queue.get("w", 30)
    with connect(quiet.url) as admin:
        admin.client_kill_filter(_type="normal", skipme=True)
    await asyncio.sleep(0.05)
    try:
        await queue.ack(lease)
    except BackendUnavailable:
        assert kind == "client", "our own connections are looked at before they are used"
        await queue.ack(lease)
    assert (await queue.status()).messages == 0


@pytest.mark.parametrize("twin", TWINS)
async def test_a_restarted_server_is_found_again(opened: Opener, quiet: Redis) -> None:
    queue = await opened(quiet.url, "jobs")
    await queue.publish("g", 1)
    lease = await queue.get("w", 30)
    quiet.kill()
    with pytest.raises(BackendUnavailable) as caught:
        await queue.ack(lease)
    assert str(quiet.port) in str(caught.value)
    quiet.start()
    await queue.ack(lease)
    assert (await queue.status()).messages == 0


@pytest.mark.parametrize("twin", TWINS)
async def test_a_missing_server_is_one_typed_error_without_the_password(queues: Queues) -> None:
    port = free_port()
    address = f"redis://user:s3cret@127.0.0.1:{port}/0"
    with pytest.raises(BackendUnavailable) as caught:
        await queues.open("jobs", url=address, startup_timeout=0.2)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "s3cret" not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize("twin", TWINS)
async def test_a_transport_waits_for_a_server_that_starts_late(queues: Queues, quiet: Redis) -> None:
    quiet.stop()
    starter = threading.Timer(0.5, quiet.start)
    starter.start()
    queue = await queues.open("jobs", url=quiet.url, startup_timeout=20)
    starter.join()
    await queue.publish("g", 1)


@pytest.mark.parametrize(
    "settings", [{}, {"decode_responses": True}, {"protocol": 3}, {"protocol": 2, "encoding": "latin-1"}]
)
@pytest.mark.parametrize("twin", TWINS)
async def test_any_setting_of_the_applications_client_works(
    queues: Queues, url: str, name: str, settings: dict[str, Any]
) -> None:
    queue = on_client(queues, url, name, **settings)
    event = {"text": "é😀 \0", "list": [1, None]}
    await queue.publish("gé😀", event, 3, dedup_id="é")
    lease = await queue.get("wörker", 30, 3)
    assert (lease.group_id, lease.event) == ("gé😀", event)
    (group,) = await queue.groups()
    assert group.worker_id == "wörker"
    (message,) = await queue.messages("gé😀")
    assert (message.dedup_id, message.event) == ("é", event)
    await queue.ack(lease)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_client_of_the_application_stays_open(queues: Queues, url: str, name: str) -> None:
    kind: Any = redis.Redis if queues.twin == "sync" else redis.asyncio.Redis
    client = kind.from_url(url)
    queues.afterwards(client.close if queues.twin == "sync" else client.aclose)
    queue = queues.over(name, client)
    await queue.publish("g", 1)
    await queue.close()
    answer = client.ping()
    assert answer if queues.twin == "sync" else await answer


@pytest.mark.parametrize("wrong", ["the other twin", "a string"])
@pytest.mark.parametrize("twin", TWINS)
def test_a_client_of_the_wrong_kind_is_refused(twin: str, wrong: str) -> None:
    kind: Any = fairlane.RedisTransport if twin == "sync" else fairlane.AsyncRedisTransport
    other = redis.asyncio.Redis() if twin == "sync" else redis.Redis()
    with pytest.raises(ConfigurationError):
        kind("redis://" if wrong == "a string" else other)


@pytest.mark.parametrize("kind", ["single", "cluster"])
@pytest.mark.parametrize("twin", TWINS)
def test_a_pipeline_is_refused(twin: str, kind: str) -> None:
    """Guards against a publish that is carried out at once, although it was meant to be part of a transaction."""
    require_server(missing(kind))
    driver: Any = redis if twin == "sync" else redis.asyncio
    face: Any = fairlane.RedisTransport if twin == "sync" else fairlane.AsyncRedisTransport
    address = os.environ[VARIABLES[kind]].removeprefix("redis+cluster://").removeprefix("redis://")
    host, _, port = address.partition("/")[0].rpartition(":")
    client = (driver.RedisCluster if kind == "cluster" else driver.Redis)(host=host, port=int(port))
    with pytest.raises(ConfigurationError, match=r"Pipeline collects commands.*pass the client itself"):
        face(client.pipeline())
    if twin == "sync":
        client.close()


@pytest.mark.parametrize("twin", TWINS)
async def test_a_connection_that_is_refused_says_why(queues: Queues, url: str, name: str) -> None:
    """Guards against the advice to migrate a queue that is there, where the server has refused the client's name."""
    with pytest.raises(ConfigurationError, match=r"refused the connection: Client names cannot.*correct the URL"):
        await queues.open(name, url=f"{url}?client_name=a%20b")


@pytest.mark.parametrize("twin", TWINS)
async def test_missing_functions_are_one_typed_error(queues: Queues, url: str, name: str) -> None:
    queue = await queues.open(name, url=url)
    await queue.publish("g", 1)
    lease = await queue.get("w", 30)
    with connect(url) as admin:
        admin.function_delete(f"fairlane_{name}")
        calls = (queue.publish("g", 1), queue.claim("w", 30), queue.ack(lease), queue.status())
        for call in calls:
            with pytest.raises(SchemaNotReady):
                await call
    migrate.upgrade(url, queue=name)
    await queue.ack(lease)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_key_of_another_type_is_one_typed_error(queues: Queues, url: str, name: str) -> None:
    queue = await queues.open(name, url=url)
    with connect(url) as admin:
        admin.set(f"{{{name}}}:floor:0", "not a sorted set")
        with pytest.raises(QueueDamaged, match="floor:0"):
            await queue.claim("w", 30)
        admin.delete(f"{{{name}}}:floor:0")
    await queue.publish("g", 1)


def busy_of(sender: Any) -> Iterator[set[Any]]:
    """The connections in use, for each event loop."""
    for slot in sender._connections._loops._slots.values():
        yield slot.client.busy


@pytest.mark.parametrize("limit", [2, 20])
@pytest.mark.parametrize("kind", ["url", "client"])
@pytest.mark.parametrize("twin", ["async"])
async def test_cancelled_claims_never_mix_up_replies_and_leave_no_connection_in_use(
    queues: Queues, url: str, name: str, kind: str, limit: int
) -> None:
    dice = random.Random(1)
    if kind == "url":
        queue = await queues.open(name, url=f"{url}?max_connections={limit}")
    else:
        pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=limit, timeout=60)
        client = redis.asyncio.Redis.from_pool(pool)
        queues.afterwards(client.aclose)
        queue = queues.over(name, client)
    for number in range(300):
        await queue.publish(f"g{number}", number)

    async def claim(number: int) -> Any:
        await asyncio.sleep(dice.random() * 0.05)
        if number % 7 == 0:
            return await queue.publish(f"extra{number}", "extra")
        return await queue.claim(f"w{number}", 60)

    tasks = [asyncio.create_task(claim(number)) for number in range(500)]
    for task in dice.sample(tasks, 400):
        await asyncio.sleep(dice.random() * 0.0003)
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    leases = [result for result in results if isinstance(result, fairlane.Lease)]
    assert {type(result) for result in results} <= {fairlane.Lease, int, type(None), asyncio.CancelledError}
    for lease in leases:
        assert lease.group_id in (f"g{lease.event}", f"extra{lease.seq}") or lease.event == "extra"
        await queue.ack(lease)
    assert len({lease.seq for lease in leases}) == len(leases)
    status = await queue.status()
    rows = await queue.groups(limit=1000)
    assert status.groups == len(rows) == status.messages
    sender = queue.transport._executor._sender
    assert not (sender._pool._in_use_connections if kind == "client" else next(iter(busy_of(sender))))
    while rest := await queue.claim("w", 60):
        assert rest.attempts == 1, "a message is lost for as long as its lease at most, and leased to one only"
        await queue.ack(rest)
    assert (await queue.status()).in_flight == status.in_flight


@pytest.mark.parametrize("twin", ["async"])
async def test_a_cancelled_caller_comes_back_at_once(queues: Queues, quiet: Redis) -> None:
    queue = await queues.open("jobs", url=quiet.url)
    with connect(quiet.url) as admin:
        admin.client_pause(2000)
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await queue.claim("w", 30)
        assert loop.time() - start < 1
        admin.client_unpause()


def test_a_forked_child_opens_connections_of_its_own(url: str, name: str) -> None:
    with fairlane.connect(url, queue=name) as transport:
        transport.publish("g", 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(50):
                    transport.publish("child", 2)
                code = 0
            finally:
                os._exit(code)
        for _ in range(50):
            transport.publish("parent", 3)
        assert os.waitpid(child, 0)[1] == 0
        assert transport.inspect.queue().messages == 101


def test_many_threads_share_one_transport(url: str, name: str) -> None:
    with fairlane.connect(f"{url}?max_connections=3", queue=name) as transport:
        for number in range(200):
            transport.publish(f"g{number}", number)
        found: list[int] = []

        def work() -> None:
            while lease := transport.claim("w", 60):
                found.append(lease.event)
                assert lease.group_id == f"g{lease.event}"
                transport.ack(lease)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(200))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate of this test")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files)
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("twin", TWINS)
async def test_tls_with_a_private_certificate(queues: Queues, certificate: Any) -> None:
    port = free_port()
    files = ("--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem"))
    trust = ("--tls-ca-cert-file", str(certificate / "cert.pem"), "--tls-auth-clients", "no")
    with private("--tls-port", str(port), *files, *trust, "--requirepass", "p%@/w"):
        secure = f"rediss://:p%25%40%2Fw@127.0.0.1:{port}/0?ssl_ca_certs={certificate / 'cert.pem'}"
        await asyncio.to_thread(migrate.upgrade, secure, queue="jobs")
        queue = await queues.open("jobs", url=secure)
        await queue.publish("g", 1)
        with pytest.raises(BackendUnavailable):  # the system does not trust the signer of this certificate
            await queues.open("jobs", url=secure.partition("?")[0], startup_timeout=0)
