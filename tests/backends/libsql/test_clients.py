"""Transports work with TLS, tokens, threads, event loops, cancellation and processes, and close all they opened."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import AuthenticationFailed, BackendUnavailable, TransportClosed
from tests.backends.libsql.conftest import executor
from tests.backends.libsql.relay import Relay, slow, status
from tests.harness import LONG, Queue, Queues, eventually
from tests.harness.http_backends import (
    assert_moves_to_the_loop_it_is_used_in,
    assert_neither_proxies_nor_netrc_come_between,
    assert_threads_share_a_transport,
    make_certificate,
    open_files,
    opened,
)
from tests.harness.queues import in_thread
from tests.servers import Server, sqld

pytestmark = pytest.mark.xdist_group("libsql-others")


async def call(twin: str, method: Any, *args: Any) -> Any:
    return await in_thread(method, *args) if twin == "sync" else await method(*args)


async def cycle(transport: Any, twin: str) -> Any:
    """Publish, claim and ack."""
    await call(twin, transport.publish, "g", 1)
    lease = await call(twin, transport.claim, "w", LONG)
    await call(twin, transport.ack, lease)
    return lease


def text_of(error: Any) -> Any:
    """The text that a traceback prints for an error."""
    texts = []
    while error is not None:
        texts.append(f"{error} {error!r} {error.args}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


# TLS


@pytest.fixture(scope="module")
def migrated(server: Server) -> Any:
    fairlane.migrate.upgrade(server.url, queue="q")
    return server


@pytest.fixture
def secured(migrated: Any, tmp_path: Path) -> Iterator[Any]:
    """A server behind a TLS relay, and its certificate."""
    certificate, key = make_certificate(tmp_path)
    with Relay(migrated.port, tls=(certificate, key)) as relay:
        yield relay, certificate


async def test_tls_with_a_private_certificate(secured: Any, twin: str) -> None:
    relay, certificate = secured
    assert relay.url.startswith("libsql://")
    transport = await opened(twin, relay.url, ca_file=str(certificate))
    await cycle(transport, twin)
    await call(twin, transport.close)
    assert fairlane.migrate.status(f"{relay.url}?ca_file={certificate}", queue="q").ready


async def test_tls_without_verification(secured: Any, twin: str) -> None:
    transport = await opened(twin, f"{secured[0].url}?verify=0")
    await cycle(transport, twin)
    await call(twin, transport.close)


async def test_tls_refuses_an_untrusted_certificate(secured: Any, twin: str, tmp_path: Path) -> None:
    """With the wrong authorities, and with those of the system. Nothing was sent, so the outcome is certain."""
    relay, _ = secured
    other, _ = make_certificate(tmp_path, "other")
    for options in ({}, {"ca_file": str(other)}):
        with pytest.raises(BackendUnavailable, match=r"(?i)certificate.*nothing was changed"):
            await opened(twin, relay.url, startup_timeout=0, **options)
    assert relay.seen == []


async def test_tls_on_one_side_only_is_unavailable(secured: Any, server: Server, twin: str) -> None:
    token = "://:secret-token@"
    urls = (
        secured[0].url.replace("libsql://", f"libsql+http{token}"),
        server.url.replace("libsql+http://", f"libsql{token}"),
    )
    for url in urls:
        with pytest.raises(BackendUnavailable) as caught:
            await opened(twin, url, startup_timeout=0)
        assert "secret-token" not in text_of(caught.value)


# Tokens


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class Tokens:
    """Signs tokens as Turso does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.public = folder, folder / "public.pem"
        self._openssl("genpkey", "-algorithm", "ed25519", "-out", "private.pem")
        self._openssl("pkey", "-in", "private.pem", "-pubout", "-out", "public.pem")

    def _openssl(self, *arguments: str) -> bytes:
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.folder).stdout

    def sign(self, **claims: Any) -> str:
        message = b".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "EdDSA", "typ": "JWT"}, claims))
        (self.folder / "message").write_bytes(message)
        signature = self._openssl("pkeyutl", "-sign", "-rawin", "-inkey", "private.pem", "-in", "message")
        return (message + b"." + encoded(signature)).decode()


@pytest.fixture(scope="module")
def guarded(server: Server, tmp_path_factory: Any) -> Iterator[Any]:
    """A server that requires tokens, and the signer of its tokens."""
    tokens = Tokens(tmp_path_factory.mktemp("tokens"))
    with sqld.private("--auth-jwt-key-file", str(tokens.public)) as own:
        fairlane.migrate.upgrade(f"{own.url}?authToken={tokens.sign()}", queue="q")
        yield own, tokens


async def test_a_valid_token_is_accepted(guarded: Any, twin: str) -> None:
    own, tokens = guarded
    token = tokens.sign(a="rw")
    for url, options in (
        (own.url.replace("://", f"://:{token}@"), {}),
        (f"{own.url}?authToken={token}", {}),
        (own.url, {"auth_token": token}),
    ):
        transport = await opened(twin, url, **options)
        await cycle(transport, twin)
        await call(twin, transport.close)


WRONG: dict[str, Callable[[Tokens, Tokens], str]] = {
    "none": lambda guarded, other: "",
    "made up": lambda guarded, other: "secret-token",
    "expired": lambda guarded, other: guarded.sign(exp=1),
    "of somebody else": lambda guarded, other: other.sign(),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_token_is_one_typed_error_without_the_token(
    guarded: Any, twin: str, wrong: Any, tmp_path: Path
) -> None:
    own, tokens = guarded
    token = WRONG[wrong](tokens, Tokens(tmp_path))
    url = own.url.replace("://", f"://:{token}@") if token else own.url
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=r"127\.0\.0\.1") as caught:
        await opened(twin, url)
    assert time.monotonic() - began < 5, "a wrong token does not get better with time"
    assert not token or token not in text_of(caught.value)
    with pytest.raises(AuthenticationFailed) as caught:
        await in_thread(fairlane.migrate.upgrade, url, queue="r")
    assert not token or token not in text_of(caught.value)


async def test_a_token_that_may_only_read_can_look_and_cannot_write(guarded: Any, twin: str) -> None:
    own, tokens = guarded
    token = tokens.sign(a="ro")
    transport = await opened(twin, own.url, auth_token=token)
    assert (await call(twin, transport.inspect.queue)).messages == 0
    with pytest.raises(AuthenticationFailed) as caught:
        await call(twin, transport.publish, "g", 1)
    assert token not in text_of(caught.value)
    assert token not in repr(vars(transport._executor))
    await call(twin, transport.close)


async def test_a_token_that_expires_meanwhile_is_a_typed_error_of_the_operation(queue: Queue, relay: Relay) -> None:
    relay.fail(status(401), 2)  # two times: the client tries once more without the old stream
    with pytest.raises(AuthenticationFailed):
        await queue.publish("g", 1)
    relay.clear()
    assert await queue.publish("g", 1) == 1


async def test_a_user_and_a_password_are_accepted_by_a_server_that_requires_them(twin: str) -> None:
    basic = base64.b64encode(b"me:pass:word").decode()
    with sqld.private("--http-auth", f"basic:{basic}") as own:
        url = own.url.replace("://", "://me:pass%3Aword@")
        await in_thread(fairlane.migrate.upgrade, url, queue="q")
        transport = await opened(twin, url)
        await cycle(transport, twin)
        await call(twin, transport.close)
        with pytest.raises(AuthenticationFailed) as caught:
            await opened(twin, url.replace("word", "port"))
        for secret in ("pass:port", "pass%3Aport", base64.b64encode(b"me:pass:port").decode()):
            assert secret not in text_of(caught.value)


# Processes, threads, event loops

FORGETFUL = {
    "sync": "t = fairlane.connect(url, 'q'); t.publish('forgotten', 1)",
    "sync, in use": "t = fairlane.connect(url, 'q'); threading.Thread(target=lambda: use(t), daemon=True).start(); "
    "t.publish('forgotten', 1)",
    "async": "import asyncio\nasync def main():\n    t = await fairlane.connect_async(url, 'q')\n"
    "    await t.publish('forgotten', 1)\nasyncio.run(main())",
}
USE = """
def use(t):
    with contextlib.suppress(fairlane.TransportClosed):
        while True:
            t.claim('w', 0.1)
"""


@pytest.mark.parametrize("how", FORGETFUL)
def test_a_process_that_forgot_close_ends_by_itself(migrated: Any, how: str) -> None:
    code = f"import contextlib, fairlane, threading\nurl = {migrated.url!r}\n{USE}{FORGETFUL[how]}\nprint('done')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert "Traceback" not in done.stderr


def test_a_transport_still_works_in_a_forked_process(migrated: Any) -> None:
    code = f"""if True:
        import os, fairlane
        t = fairlane.connect({migrated.url!r}, "q")
        t.publish("before", 1)
        if (child := os.fork()) == 0:
            t.publish("child", 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        t.publish("after", 1)
        t.close()
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_threads_share_a_transport(server: Server) -> None:
    assert_threads_share_a_transport(server.url, "threads")


def test_an_async_transport_moves_to_the_loop_it_is_used_in(server: Server) -> None:
    assert_moves_to_the_loop_it_is_used_in(server.url, "loops")


# Cancellation, and close


@pytest.mark.parametrize("twin", ["async"], indirect=True)
async def test_a_write_that_was_sent_is_finished_although_its_caller_is_cancelled(queue: Queue, relay: Relay) -> None:
    """Guards against a write that ends in the middle. It would stay in sqld's queue of writers, and all other writers
    would wait for it, perhaps for ever."""
    await queue.publish("warm", 0)
    relay.fail(slow(0.2))
    doomed = asyncio.ensure_future(queue.publish("g", 1))
    await eventually(lambda: not relay.pending)
    doomed.cancel()
    assert isinstance((await asyncio.gather(doomed, return_exceptions=True))[0], asyncio.CancelledError)
    await queue.publish("g", 2)
    assert [row.event for row in await queue.messages("g")] == [1, 2]
    writes = [request for request in relay.seen if request.statements[0].startswith("insert")]
    assert [request.baton is None for request in writes] == [True, False, False], "its stream was given up"


@pytest.mark.parametrize("twin", ["async"], indirect=True)
async def test_cancelled_calls_harm_no_other(queue: Queue, relay: Relay) -> None:
    await queue.fill([(f"g{number}", number) for number in range(30)])
    relay.fail(slow(0.02), 100)
    doomed = [asyncio.ensure_future(queue.claim("doomed", 0.5)) for _ in range(30)]
    waiting = [asyncio.ensure_future(queue.publish("last", number)) for number in range(30)]
    await asyncio.sleep(0.1)
    for task in doomed:
        task.cancel()
    await asyncio.gather(*waiting)
    assert all(
        each is None or isinstance(each, fairlane.Lease | asyncio.CancelledError)
        for each in await asyncio.gather(*doomed, return_exceptions=True)
    )
    relay.clear()
    seen: list[tuple[str, int]] = []

    async def all_back() -> Any:
        seen.extend(await queue.drain())
        return len(seen) >= 60

    await eventually(all_back)
    assert Counter(group for group, _ in seen) == {**{f"g{n}": 1 for n in range(30)}, "last": 30}


@pytest.mark.parametrize("twin", ["async"])
async def test_a_write_that_is_cancelled_before_it_begins_blocks_no_other(queue: Queue) -> None:
    """A program cancels all tasks of its event loop. Guards against a stream that is never given back."""
    await queue.publish("g", 0)
    client = await executor(queue)._own.client()
    publishing = asyncio.ensure_future(queue.publish("g", 1))
    for _ in range(100):
        if client._writes:
            break
        await asyncio.sleep(0)
    for task in client._writes:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    await asyncio.wait_for(queue.publish("g", 2), 5)
    assert [event for _, event in await queue.drain()] == [0, 2]


async def test_close_waits_for_a_write_that_was_sent_and_ends_streams(queue: Queue, relay: Relay) -> None:
    relay.fail(slow(0.2))
    last = asyncio.ensure_future(queue.publish("g", 1))
    await eventually(lambda: not relay.pending and relay.seen)
    await queue.close()
    await queue.close()
    outcome = (await asyncio.gather(last, return_exceptions=True))[0]
    assert outcome == 1 or isinstance(outcome, TransportClosed | asyncio.CancelledError | BackendUnavailable)
    with pytest.raises(TransportClosed):
        await queue.publish("g", 2)
    assert await queue.leftovers() == {f"{queue.name}_messages": 1, f"{queue.name}_groups": 1}


async def test_close_closes_the_connections(queues: Queues, queue: Queue) -> None:
    other = await queues.open(queue.name)
    await other.publish("g", 1)
    before = open_files()
    await other.close()
    assert open_files() < before


async def test_proxy_variables_and_netrc_are_ignored(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await assert_neither_proxies_nor_netrc_come_between(queue, monkeypatch, tmp_path)


async def test_a_client_of_the_application_is_used_and_left_open(queue: Queue, server: Server, twin: str) -> None:
    import libsql_client

    url = server.url.replace("libsql+http", "http")
    if twin == "sync":
        client: Any = libsql_client.create_client_sync(url)
        kind: Any = fairlane.LibsqlTransport
    else:
        client = libsql_client.create_client(url)
        kind = fairlane.AsyncLibsqlTransport
    transport = kind(client, queue=queue.name)
    assert (await cycle(transport, twin)).event == 1
    await call(twin, transport.publish_many, [fairlane.Message("g", 2), fairlane.Message("g", 3)])
    (lease,) = await call(twin, transport.claim_many, "w", LONG, 2)
    lease = await call(twin, transport.ack_and_claim, lease, "w", LONG)
    assert lease.event == 3
    assert await call(twin, transport.ack_many, [lease, lease]) == [lease]
    await call(twin, transport.close)
    with pytest.raises(TransportClosed):
        await cycle(transport, twin)
    await cycle(kind(client, queue=queue.name), twin)
    await call(twin, client.close)


async def test_an_executor_does_not_show_the_token(queues: Queues, queue: Queue) -> None:
    other = await queues.open(queue.name, auth_token="secret-token")
    assert "secret-token" not in repr(vars(executor(other)))
