"""How long calls may take, also while a transport starts."""

from __future__ import annotations

import time

import pytest

from fairlane.backends import MANIFESTS
from fairlane.backends.base import LEAST, Limit, Limited, starting

TIMED = [name for name, manifest in MANIFESTS.items() if any(each.name == "timeout" for each in manifest.options)]


def test_a_call_ends_after_its_timeout_and_during_a_start_with_the_start() -> None:
    limit, now = Limit(30.0), time.monotonic()
    assert limit.deadline(now) == now + 30
    with limit.within(5.0):
        assert now + 5 <= limit.deadline(now) < now + 10
    assert limit.deadline(now) == now + 30


def test_a_start_prolongs_no_call() -> None:
    """Guards against a `timeout` that does not count while a transport is made."""
    limit, now = Limit(0.5), time.monotonic()
    with limit.within(5.0):
        assert limit.deadline(now) == now + 0.5


def test_a_call_gets_a_second_even_when_the_start_is_over() -> None:
    """Guards against an error that blames a server which had no time to answer, as with `startup_timeout=0`."""
    limit, now = Limit(30.0), time.monotonic()
    with limit.within(0.0):
        assert limit.deadline(now + 3) == now + 3 + LEAST


@pytest.mark.parametrize("twin", ["executor", "async_executor"])
@pytest.mark.parametrize("name", TIMED)
def test_every_backend_with_a_timeout_keeps_the_time_of_a_start(name: str, twin: str) -> None:
    """Guards against an executor that is ignored silently because it has no limit."""
    manifest = MANIFESTS[name]
    executor = getattr(manifest.loaded(), twin).from_url(f"{manifest.schemes[0]}://host", "q", timeout=9.0)
    assert isinstance(executor, Limited)
    now = time.monotonic()
    assert executor.limit.deadline(now) == now + 9
    with starting(executor, 2.0):
        assert executor.limit.deadline(now) < now + 9
