"""Exceptions that a signal handler raises, such as the time limit of a job: they pass unchanged and damage nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

import fairlane
from tests.harness.proxy import Proxy
from tests.interruption import interrupted

WITHIN = "fairlane/backends/redis/"
KINDS = (TimeoutError, ConnectionResetError)
"""Exceptions that drivers raise, too."""


@contextmanager
def time_limit(kind: type[Exception], seconds: float = 0.0) -> Iterator[None]:
    """Let the handler of SIGALRM raise an exception. 0 seconds: only when the test raises the signal itself."""

    def over(*_: object) -> None:
        raise kind("the time limit of the job")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class AlarmingSocket:
    """A socket that raises the signal when all bytes were sent, before Python runs the next line."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)
        signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_limit_is_never_taken_for_a_broken_connection(url: str, name: str, kind: type[Exception]) -> None:
    """Guards against a publish that is sent again and stored twice because the signal handler raised a TimeoutError."""
    with fairlane.connect(url, queue=name) as transport:
        transport.publish("g", 1)
        ((connection, _),) = transport._executor._sender._connections._free  # type: ignore[attr-defined]
        connection._socket = AlarmingSocket(connection._socket)
        with time_limit(kind), pytest.raises(kind, match="the time limit of the job"):
            transport.publish("g", 2)
        assert [message.event for message in transport.inspect.messages("g")] == [1, 2]


@pytest.mark.parametrize("made", ["url", "client"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_limit_that_ends_while_a_call_waits_passes_as_it_is(
    url: str, name: str, kind: type[Exception], made: str
) -> None:
    """Guards against a job that continues after its time limit because the exception looked like a server error."""
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        through = f"redis://127.0.0.1:{proxy.port}/0"
        if made == "url":
            transport = fairlane.connect(through, queue=name)
        else:
            transport = fairlane.RedisTransport(redis.Redis.from_url(through), queue=name)
        with transport:
            transport.publish("g", 1)
            proxy.silence()
            with time_limit(kind, 0.2), pytest.raises(kind, match="the time limit of the job"):
                transport.claim("w", 30)


def test_an_interrupted_call_frees_its_connection_for_the_next_call(url: str, name: str) -> None:
    """Guards against calls that wait for ever because an interrupted call never gave back its connection."""
    at = 0
    while True:
        with fairlane.connect(url, queue=name, max_connections=1, timeout=2) as transport:
            transport.publish("g", 1)
            if not interrupted(partial(transport.publish, "g", 2), at, WITHIN):
                break
            transport.publish("g", 3)
        at += 1
    assert at > 5, "nothing was interrupted"
