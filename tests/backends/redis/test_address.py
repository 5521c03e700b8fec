"""URLs of Redis are read correctly, and its errors become typed ones. No server is needed."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fairlane.backends.redis.address import make_async_connection, make_connection, parse
from fairlane.backends.redis.errors import NotSent, code_of
from fairlane.backends.redis.errors import translate as translate_for
from fairlane.backends.redis.wire import Calls
from fairlane.backends.stored import EXTEND, GROUP_STATUS, PUBLISH, REVISION, Call
from fairlane.errors import AuthenticationFailed, BackendFull, BackendUnavailable, ConfigurationError

SECRET = "s3cret"


def translate(error: Exception) -> Exception | None:
    return translate_for(error, "h", "jobs")


@pytest.mark.parametrize(
    ("url", "host", "port", "database"),
    [
        ("redis://", "localhost", 6379, 0),
        ("redis://example.org", "example.org", 6379, 0),
        ("redis://example.org:7000/3", "example.org", 7000, 3),
        ("redis://[::1]:7000/0", "::1", 7000, 0),
        ("rediss://user:p%40ss@example.org:7000", "example.org", 7000, 0),
        ("redis://example.org?db=2&socket_timeout=3.5&max_connections=9", "example.org", 6379, 2),
    ],
)
def test_a_url_says_where_the_server_is(url: str, host: str, port: int, database: int) -> None:
    address = parse(url)
    made: Any
    for made in (make_connection(address, address.nodes[0]), make_async_connection(address, address.nodes[0])):
        assert (made.host, made.port, made.db) == (host, port, database)
    assert address.shown == (
        f"[{host}]:{port}"
        if ":" in host
        else url.partition("//")[2].rpartition("@")[2].partition("/")[0].partition("?")[0] or "localhost"
    )


def test_options_of_the_call_win_over_those_of_the_url() -> None:
    address = parse("redis://h?allow_eviction=0&max_connections=9&timeout=2", allow_eviction=True, max_connections=3)
    assert (address.allow_eviction, address.max_connections, address.timeout) == (True, 3, 2.0)
    assert not {"allow_eviction", "max_connections", "timeout"} & set(address.settings)


def test_each_step_of_connecting_takes_no_longer_than_the_timeout() -> None:
    address = parse("redis://h?socket_timeout=3.5")
    assert address.timeout == 3.5
    made = make_connection(address, address.nodes[0])
    assert (made.socket_timeout, made.socket_connect_timeout) == (3.5, 3.5)
    made = make_connection(parse("redis://h"), address.nodes[0])
    assert (made.socket_timeout, made.socket_connect_timeout) == (30.0, 5.0)


def test_an_encoded_password_is_decoded() -> None:
    address = parse("redis://us%3Aer:p%25%40%2F%3F%23x@h:1/0")
    made = make_connection(address, address.nodes[0])
    assert (made.username, made.password) == ("us:er", "p%@/?#x")
    assert "p%@/?#x" not in repr(address)


def test_a_cluster_has_many_nodes() -> None:
    address = parse("rediss+cluster://user:pass@a:7000,b,[::1]:7002?ssl_check_hostname=false")
    assert [str(node) for node in address.nodes] == ["a:7000", "b:6379", "[::1]:7002"]
    assert (address.cluster, address.tls) == (True, True)
    assert parse("redis+cluster://a").tls is False


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@h:port",
        f"redis://:{SECRET}@h:99999999",
        f"redis://:{SECRET}@h?no_such_option=1",
        f"redis://:{SECRET}@h?host=elsewhere",
        f"redis://:{SECRET}@h/jobs",
        f"redis://:{SECRET}@h/1/2",
        f"redis://:{SECRET}@h?timeout=0",
        f"redis://:{SECRET}@h?socket_timeout=soon",
        f"redis://:{SECRET}@h?allow_eviction=maybe",
        f"redis://:{SECRET}@h?max_connections=0",
        f"redis://:{SECRET}@h?max_connections=many",
        f"redis+cluster://:{SECRET}@a,b/1",
        f"redis+cluster://:{SECRET}@a:port",
        f"redis+cluster://:{SECRET}@a,b:port",
        f"rediss://:{SECRET}@h?ssl_cert_reqs=perhaps",
        f"rediss://:{SECRET}@h?ssl_ca_certs=/no/such/file",
        f"rediss://:{SECRET}@h?ssl_certfile=/no/such/file",
        f"rediss://:{SECRET}@h?ssl_ciphers=none",
        f"rediss://:{SECRET}@h?ssl_min_version=5",
        f"redis://:{SECRET}@h/0?db=1",
        f"redis://:{SECRET}@h/?password={SECRET}2",
        f"redis+cluster://:{SECRET}@h?db=1",
        f"redis://:{SECRET}@h?credential_provider={SECRET}",
        f"redis://:{SECRET}@h?redis_connect_func=print",
        f"redis://:{SECRET}@h?socket_type=5",
        f"redis://:{SECRET}@h?encoding=no-such",
    ],
)
def test_a_wrong_url_is_one_typed_error_without_the_password(url: str) -> None:
    """Also when two parts of the URL contradict each other, or when redis-py would not fail before it connects."""
    with pytest.raises(ConfigurationError) as caught:
        parse(url)
    assert SECRET not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (redis.exceptions.OutOfMemoryError("command not allowed"), "OOM", BackendFull),
        (redis.exceptions.ReadOnlyError("You can't write"), "READONLY", BackendUnavailable),
        (redis.exceptions.NoPermissionError("this user"), "NOPERM", AuthenticationFailed),
        (redis.exceptions.ResponseError("OOM command not allowed"), "OOM", BackendFull),
        (redis.exceptions.ResponseError("NOREPLICAS Not enough"), "NOREPLICAS", BackendUnavailable),
        (redis.exceptions.ResponseError("MISCONF Redis is"), "MISCONF", BackendUnavailable),
        (redis.exceptions.ResponseError("MOVED 1 h:1"), "MOVED", ConfigurationError),
        (redis.exceptions.ResponseError("WRONGTYPE Operation"), "WRONGTYPE", None),
        (redis.exceptions.ResponseError("DB index is out of range"), "DB", ConfigurationError),
        (redis.exceptions.ResponseError("Function not found"), "ERR", Exception),
        (redis.exceptions.ResponseError("ERR user_function:1: x"), "ERR", Exception),
    ],
)
def test_replies_are_known_by_their_code(error: Any, code: str, kind: type[Exception] | None) -> None:
    assert code_of(error) == code
    known = translate(error)
    assert known is None if kind is None else isinstance(known, kind)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis.exceptions.ConnectionError("refused"), BackendUnavailable),
        (redis.exceptions.BusyLoadingError("loading"), BackendUnavailable),
        (redis.exceptions.TimeoutError("late"), BackendUnavailable),
        (redis.exceptions.InvalidResponse("Protocol Error"), BackendUnavailable),
        (redis.exceptions.ClusterDownError("down"), BackendUnavailable),
        (redis.exceptions.ClusterError("TTL exhausted."), BackendUnavailable),
        (redis.exceptions.RedisClusterException("no nodes"), BackendUnavailable),
        (redis.exceptions.AuthenticationError("WRONGPASS"), AuthenticationFailed),
        (ConnectionResetError(), BackendUnavailable),
        (ValueError("of the caller"), None),
    ],
)
def test_failures_of_the_connection_are_known_by_their_class(error: Exception, kind: type[Exception] | None) -> None:
    known = translate(error)
    assert known is None if kind is None else isinstance(known, kind)


def test_an_error_says_whether_the_call_may_have_been_carried_out() -> None:
    unsent = NotSent()
    unsent.__cause__ = redis.exceptions.ConnectionError("refused")
    assert "nothing was changed" in str(translate(unsent))
    assert "not known" in str(translate(redis.exceptions.ConnectionError("reset")))


def test_a_call_is_packed_as_the_driver_would() -> None:
    calls = Calls("orders")
    driver: Any = redis  # `Any`: its connections have no types
    connection = driver.Connection()
    for request in (
        Call(PUBLISH, {"p_group_id": "é", "p_event": '"😀"', "p_priority": 3, "p_dedup_id": None}),
        Call(REVISION, {}),
        Call(GROUP_STATUS, {"p_limit": 10_000}),
    ):
        for _ in range(2):
            assert calls.packed(request) == b"".join(connection.pack_command(*calls.command(request)))


@pytest.mark.parametrize(
    ("seconds", "micros"),
    [(1e-9, 1), (0.1, 100_000), (30, 30_000_000), (30.0000001, 30_000_001), (43200, 43_200_000_000)],
)
def test_times_are_rounded_up_to_microseconds(seconds: float, micros: int) -> None:
    request = Call(EXTEND, {"p_group_id": "g", "p_token": "t", "p_visibility": seconds})
    assert Calls("orders").command(request)[-1] == micros
