"""The rights in the header of `library.lua.j2` are enough for a worker, and for a reader who changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import fairlane
from fairlane import migrate
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import AuthenticationFailed, ConfigurationError
from fairlane.templates import render
from tests.backends.redis.servers import connect, private
from tests.harness import held
from tests.servers.redis import Redis


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with private() as made:
        migrate.upgrade(made.url, queue="orders")
        yield made


def rules(role: str) -> list[str]:
    """The rules of a role for the queue `orders`, from the header of the library."""
    text = render("lua/library.lua.j2", queue="orders", revision=CLIENT_REVISION)
    found = re.search(rf"^ +{role}: +(.*(?:\n {{12,}}.*)*)", text, re.MULTILINE)
    assert found, role
    return found[1].removesuffix("]]").split()


def connected(server: Redis, role: str, *extra: str) -> fairlane.RedisTransport:
    with connect(server.url) as client:
        client.execute_command("ACL", "SETUSER", role, "reset", "on", ">p%/@ s", *rules(role), *extra)
    url = server.url.replace("//", f"//{role}:p%25%2F%40%20s@")
    return fairlane.RedisTransport.from_url(url, queue="orders")


def test_a_worker_can_do_its_work(server: Redis) -> None:
    with connected(server, "worker") as queue:
        queue.publish("g", 1, 4, dedup_id="id")
        queue.publish("g", 2)
        lease = queue.claim("w", 30)
        assert lease is not None
        queue.nack(queue.extend(lease, 60), 0.001)
        while not (lease := queue.claim("w", 30)):
            pass
        queue.ack(lease)
        for group_id in ("g", None):
            assert queue.pause(group_id)
            assert queue.resume(group_id)
        queue.publish_many([fairlane.Message("g", 3), fairlane.Message("h", 4, 4, dedup_id="h")])
        leases = queue.claim_many("w", 30, 2)
        assert held(queue.ack_and_claim(leases.pop(), "w", 30)).attempts == 1
        assert queue.ack_many(leases) == []
        assert queue.inspect.queue().messages == 1
        assert len(queue.inspect.groups()) == len(queue.inspect.messages("g")) == 1


def test_a_worker_can_do_nothing_else(server: Redis) -> None:
    connected(server, "worker").close()
    with connect(server.url.replace("//", "//worker:p%25%2F%40%20s@")) as client:
        for command in (("KEYS", "*"), ("GET", "mine"), ("FLUSHALL",), ("FUNCTION", "DELETE", "fairlane_orders")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)


def test_a_reader_can_look_and_change_nothing(server: Redis) -> None:
    with connected(server, "reader") as queue:
        queue.inspect.queue()
        queue.inspect.groups()
        queue.inspect.messages("g")
        with pytest.raises(AuthenticationFailed):
            queue.publish("g", 1)
        with pytest.raises(AuthenticationFailed):
            queue.claim("w", 30)
        for refused in (queue.pause, queue.resume):
            with pytest.raises(AuthenticationFailed):
                refused("g")


def test_a_missing_right_to_read_the_eviction_policy_is_an_error_that_says_what_to_do(server: Redis) -> None:
    with pytest.raises(ConfigurationError, match="allow_eviction"):
        connected(server, "worker", "-info")


def test_wrong_passwords_and_missing_rights_are_one_typed_error_without_the_password(server: Redis) -> None:
    connected(server, "worker").close()
    secret = "s3cret-pass"
    for url in (
        server.url.replace("//", f"//worker:{secret}@"),
        server.url.replace("//", f"//nobody:{secret}@"),
    ):
        for action in (
            lambda url=url: fairlane.connect(url, queue="orders"),
            lambda url=url: migrate.upgrade(url, queue="orders"),
            lambda url=url: migrate.status(url, queue="orders"),
        ):
            with pytest.raises(AuthenticationFailed) as caught:
                action()
            assert secret not in f"{caught.value}{caught.value!r}{caught.value.__cause__}"
    worker = server.url.replace("//", "//worker:p%25%2F%40%20s@")
    with pytest.raises(AuthenticationFailed):
        migrate.upgrade(worker, queue="another")


def failure_of(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except AuthenticationFailed as error:
        return str(error).lower()
    return None


@pytest.mark.parametrize("command", ["fcall", "zadd", "hset", "zrange", "time", "zcard", "hlen", "type"])
def test_a_right_that_is_missing_is_named(server: Redis, command: str) -> None:
    """Guards against the advice "try again" or "run fairlane migrate" where somebody must grant a right."""
    with connected(server, "worker") as queue:
        queue.publish(f"without {command}", 0)
        lease = held(queue.claim("w", 30))
        messages = queue.inspect.queue().messages
        with connect(server.url) as client:
            client.execute_command("ACL", "SETUSER", "worker", f"-{command}")
        failures = [
            failure_of(lambda: queue.publish("another", 1)),
            failure_of(lambda: queue.claim("w", 30)),
            failure_of(lambda: queue.ack(lease)),
        ]
        assert all(command in failure for failure in failures if failure), failures
        assert any(failures) or command == "type", "it is asked for only when a function fails"
        with connect(server.url) as client:
            client.execute_command("ACL", "SETUSER", "worker", f"+{command}")
        assert queue.inspect.queue().messages <= messages + 1
        while rest := queue.claim("w", 30):
            queue.ack(rest)


def test_a_key_that_a_user_may_not_use_is_named(server: Redis) -> None:
    connected(server, "worker").close()
    with connect(server.url) as client:
        client.execute_command("ACL", "SETUSER", "worker", "resetkeys", "~{another}:*")
    with pytest.raises(AuthenticationFailed, match="key"):
        fairlane.connect(server.url.replace("//", "//worker:p%25%2F%40%20s@"), queue="orders")
