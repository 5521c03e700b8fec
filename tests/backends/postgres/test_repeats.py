"""Calls are made again after a deadlock or an ended idle session, but only where this is safe."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from fairlane import BackendUnavailable
from fairlane.backends import stored
from fairlane.backends.postgres.executor import TRIES, AsyncPostgresExecutor, PostgresExecutor
from fairlane.backends.stored import Call

CLAIM = Call(stored.CLAIM, {"p_worker_id": "w", "p_visibility": 60.0, "p_min_priority": 0})
PUBLISH = Call(stored.PUBLISH, {"p_group_id": "g", "p_event": "1", "p_priority": 0, "p_dedup_id": None})


class Source:
    """Raises the error `losses` times, and then answers."""

    limit: Any = None

    def __init__(self, losses: int, error: type[psycopg.Error] = psycopg.errors.DeadlockDetected) -> None:
        self.losses = losses
        self.error = error
        self.calls = 0

    def run(self, text: str, arguments: Any) -> Any:
        self.calls += 1
        if self.calls <= self.losses:
            raise self.error("as the server says it")
        return [("row",)]

    def close(self) -> None: ...


class AsyncSource(Source):
    async def run(self, text: str, arguments: Any) -> Any:
        return super().run(text, arguments)


async def execute(twin: str, source: Any, request: Call, **options: Any) -> Any:
    if twin == "sync":
        return PostgresExecutor(source, "q", "host", **options).execute(request)
    return await AsyncPostgresExecutor(source, "q", "host", **options).execute(request)


def sources(twin: str, losses: int, *error: type[psycopg.Error]) -> Any:
    return (Source if twin == "sync" else AsyncSource)(losses, *error)


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_claim_that_lost_a_deadlock_is_made_again(twin: str) -> None:
    """Two claims may end in a deadlock, although each skips locked rows. No worker should see this error."""
    source = sources(twin, TRIES - 1)
    assert await execute(twin, source, CLAIM) == [("row",)]
    assert source.calls == TRIES


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_claim_that_always_loses_a_deadlock_ends_with_a_typed_error(twin: str) -> None:
    source = sources(twin, 1000)
    with pytest.raises(BackendUnavailable, match="nothing was changed"):
        await execute(twin, source, CLAIM)
    assert source.calls == TRIES


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_in_the_transaction_of_an_application_nothing_is_repeated(twin: str) -> None:
    """The whole transaction is over, and only the application knows what else was in it."""
    source = sources(twin, 1)
    with pytest.raises(psycopg.errors.DeadlockDetected):
        await execute(twin, source, CLAIM, joins=True)
    assert source.calls == 1


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_publish_that_lost_a_deadlock_is_one_typed_error(twin: str) -> None:
    source = sources(twin, 1)
    with pytest.raises(BackendUnavailable, match="nothing was changed"):
        await execute(twin, source, PUBLISH)
    assert source.calls == 1


@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_call_that_met_the_end_of_an_idle_session_is_made_again(twin: str) -> None:
    """The server sends this error only to a session that has sent nothing, so nothing was carried out."""
    source = sources(twin, 1, psycopg.errors.IdleSessionTimeout)
    assert await execute(twin, source, PUBLISH) == [("row",)]
    assert source.calls == 2
