"""The pool alone, through random histories: it goes through all states of connections, attempts and waiters.

Connections, attempts and event loops are simple stand-ins here, since a real server cannot be led through all of these
histories. `test_vanishing.py` has the same faults with a real server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.pq import ConnStatus

from fairlane import TransportClosed
from fairlane.backends.postgres import pool as pool_module
from fairlane.backends.postgres import waiters as waiters_module
from fairlane.backends.postgres.errors import NoThread
from fairlane.backends.postgres.pool import IDLE_SECONDS, LOST_AFTER, PAUSE, Pool
from fairlane.backends.postgres.waiters import OVERDUE, Attempt, Waiter
from tests.interruption import TimeLimit, interrupted

TIMEOUT = 30.0
MOST = 2


class Clock:
    """Replaces the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Loop:
    """An event loop, which may be stopped or closed at any moment."""

    running = True
    closed = False

    def is_running(self) -> bool:
        return self.running and not self.closed

    def is_closed(self) -> bool:
        return self.closed


class Connection:
    """A connection, as far as the pool uses it."""

    def __init__(self, finished: list[int], number: int) -> None:
        self.deadline = float("inf")
        self.loop: Any = None
        self.dropped = False
        self.used_at = 0.0
        self.fit = True
        self.at_rest = True
        self.number = number
        self.pgconn = SimpleNamespace(status=ConnStatus.OK, finish=lambda: finished.append(number))

    def is_fit(self) -> bool:
        return self.fit and not self.dropped

    def abandon(self) -> None:
        self.pgconn.finish()


class Call(Waiter[Any]):
    """A call that waits."""

    def wake(self) -> bool:
        return self.loop is None or self.loop.is_running()


class Try(Attempt[Any]):
    """An attempt to open a connection; the state machine decides how it ends."""

    going = False
    refused: BaseException | None = None

    def begin(self) -> None:
        if self.refused is not None:
            raise self.refused
        self.going = True

    def goes_on(self) -> bool:
        return self.going

    def stop(self) -> None:
        """Do nothing: the attempt goes on, as a thread does."""

    def end(self, connection: Any = None, error: BaseException | None = None) -> None:
        self.connection, self.error = connection, error
        self._ended(self)
        self.going = False


class World:
    """A pool and all that surrounds it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.finished: list[int] = []
        self.tries: list[Try] = []
        self.refusal: BaseException | None = None
        self.waiting: list[Call] = []
        self.in_use: list[Any] = []
        self.lost: list[Any] = []
        self.numbers = 0
        self.pool: Pool[Any] = Pool(MOST, self.attempt)

    def attempt(self, ended: Callable[[Any], None]) -> Any:
        made = Try(None, ended)  # type: ignore[arg-type]
        made.refused, self.refusal = self.refusal, None
        self.tries.append(made)
        return made

    def connection(self) -> Any:
        self.numbers += 1
        return Connection(self.finished, self.numbers)

    def look(self, waiter: Call) -> None:
        """Let a waiter look. With an outcome it stops waiting; without one it makes sure that an attempt runs."""
        if not waiter.has_outcome and self.clock.now < waiter.deadline:
            self.pool.settle(waiter)
        elif waiter.has_outcome or self.clock.now >= waiter.deadline:
            try:
                connection = waiter.outcome() if waiter.has_outcome else None
            except Exception:
                connection = None
            self.pool.leave(waiter)
            self.waiting.remove(waiter)
            if connection is not None:
                self.in_use.append(connection)

    def going(self) -> list[Try]:
        return [each for each in self.tries if each.going]


def _with_clock(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(pool_module, "time", world.clock)
    monkeypatch.setattr(waiters_module, "time", world.clock)


def serves(world: World) -> None:
    """Assert that a call gets a connection soon, from a server that accepts all connections."""
    loop: Any = Loop()
    waiter = Call(float("inf"), loop)
    for _ in range(2 * MOST + 6):
        if waiter.has_outcome:
            break
        world.pool.settle(waiter)
        for attempt in world.going():
            attempt.end(world.connection())
        world.clock.now += PAUSE
    assert waiter.has_outcome, "nobody is served any more"
    connection = waiter.outcome()
    world.pool.leave(waiter)
    world.pool.give(connection)


class Histories(RuleBasedStateMachine):
    """All that callers, threads, loops, the server and signal handlers may do to a pool, in any order."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.world = World()
        _with_clock(self.patch, self.world)
        self.loops = [Loop(), Loop()]
        self.at: int | None = None

    def do(self, operation: Callable[[], object]) -> bool:
        """Do something. Return False if an exception from a signal handler came in the middle."""
        at, self.at = self.at, None
        if at is None:
            operation()
            return True
        return interrupted(operation, at, "postgres/pool.py") is None

    @rule(at=st.integers(0, 40))
    def interrupt_what_comes_next(self, at: int) -> None:
        self.at = at

    @rule(loop=st.sampled_from([None, 0, 1]))
    def a_call_begins(self, loop: int | None) -> None:
        where: Any = None if loop is None else self.loops[loop]
        if where is not None and not where.is_running():
            return
        world = self.world
        got: list[Any] = []
        if not self.do(lambda: got.append(world.pool.take(world.clock.now + TIMEOUT, where))):
            return
        if got[0] is not None:
            world.in_use.append(got[0])
            return
        waiter = Call(world.clock.now + TIMEOUT, where)
        world.waiting.append(waiter)
        world.pool.settle(waiter)

    @precondition(lambda self: self.world.waiting)
    @rule(data=st.data())
    def a_waiter_looks(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.world.waiting))
        if waiter.loop is not None and not waiter.loop.is_running():
            return
        if not self.do(lambda: self.world.pool.settle(waiter)):
            self.a_waiter_is_given_up(waiter)  # as `_waited` does
        else:
            self.world.look(waiter)

    @precondition(lambda self: self.world.waiting)
    @rule(data=st.data())
    def a_caller_is_cancelled_while_it_waits(self, data: st.DataObject) -> None:
        self.a_waiter_is_given_up(data.draw(st.sampled_from(self.world.waiting)))

    def a_waiter_is_given_up(self, waiter: Call) -> None:
        self.world.waiting.remove(waiter)
        if not self.do(lambda: self.world.pool.leave(waiter)):
            self.world.pool.leave(waiter)

    @precondition(lambda self: self.world.in_use)
    @rule(data=st.data(), how=st.sampled_from(["done", "refused", "broken", "given up"]))
    def a_call_ends(self, data: st.DataObject, how: str) -> None:
        connection = data.draw(st.sampled_from(self.world.in_use))
        self.world.in_use.remove(connection)
        if connection.loop is not None and connection.loop.closed:
            self.world.lost.append(connection)
            return
        errors: dict[str, BaseException] = {"refused": psycopg.errors.RaiseException(), "given up": TimeLimit()}
        connection.at_rest = how != "given up"
        if how == "broken":
            connection.pgconn.status = ConnStatus.BAD
        error = errors.get(how, psycopg.OperationalError())
        if how == "done":
            if not self.do(lambda: self.world.pool.give(connection)):
                self.world.pool.failed(connection, TimeLimit())  # as `run` does
        else:
            self.do(lambda: self.world.pool.failed(connection, error))

    @precondition(lambda self: self.world.in_use)
    @rule(data=st.data(), held=st.booleans())
    def a_call_vanishes(self, data: st.DataObject, held: bool) -> None:
        """The call's frames are gone or, if `held`, a traceback still holds them."""
        connection = data.draw(st.sampled_from(self.world.in_use))
        self.world.in_use.remove(connection)
        if held:
            self.world.lost.append(connection)

    @rule(which=st.sampled_from([0, 1]), how=st.sampled_from(["stopped", "runs again", "closed"]))
    def a_loop_changes(self, which: int, how: str) -> None:
        loop: Any = self.loops[which]
        if how == "closed":
            loop.closed, self.loops[which] = True, Loop()
            self.world.waiting = [waiter for waiter in self.world.waiting if waiter.loop is not loop]
            gone = [each for each in self.world.in_use if each.loop is loop]
            self.world.in_use = [each for each in self.world.in_use if each.loop is not loop]
            self.world.lost += gone
        else:
            loop.running = how == "runs again"

    @precondition(lambda self: self.world.going())
    @rule(data=st.data(), how=st.sampled_from(["opened", "failed", "cancelled", "vanished"]))
    def an_attempt_ends(self, data: st.DataObject, how: str) -> None:
        attempt = data.draw(st.sampled_from(self.world.going()))
        if how == "vanished":
            attempt.going = False
        elif how == "opened":
            if not self.do(lambda: attempt.end(self.world.connection())):
                attempt.going = False
        elif not self.do(lambda: attempt.end(error=psycopg.OperationalError() if how == "failed" else None)):
            attempt.going = False

    @rule(error=st.sampled_from([NoThread("no thread"), MemoryError()]))
    def the_next_attempt_is_refused(self, error: BaseException) -> None:
        self.world.refusal = error

    @rule()
    def the_server_ends_sessions_at_rest(self) -> None:
        for each in self.world.pool._idle:
            each.fit = False

    @rule(seconds=st.sampled_from([0.1, PAUSE, TIMEOUT + OVERDUE + 1, LOST_AFTER + 1, IDLE_SECONDS + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.now += seconds

    @invariant()
    def no_connection_has_two_users_and_there_are_not_too_many(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        handed = [each for waiter in world.waiting for each in waiter._handed]
        users = [id(each) for each in (*world.pool._idle, *world.in_use, *handed)]
        assert len(users) == len(set(users))
        assert len(world.pool._counted()) <= MOST

    def teardown(self) -> None:
        """End all calls that are left. Then a new call must be served, and `close` must close what the pool has.

        A connection that an interruption has left to nobody is closed when it is collected, so it is not counted here.
        """
        if not hasattr(self, "world"):
            return
        try:
            self.end_all()
        finally:
            self.patch.undo()

    def end_all(self) -> None:
        world = self.world
        world.refusal = None
        for loop in self.loops:
            loop.running = True
        world.clock.now += TIMEOUT + 1
        for waiter in list(world.waiting):
            world.look(waiter)
            if waiter in world.waiting:
                world.look(waiter)
        while world.in_use:
            world.pool.give(world.in_use.pop())
        world.clock.now += OVERDUE
        serves(world)
        at_rest = {each.number for each in world.pool._idle if not each.dropped}
        world.pool.close()
        assert at_rest <= set(world.finished)
        for attempt in world.going():
            attempt.end(world.connection())
            assert world.numbers in world.finished
        assert not world.pool._idle
        assert not world.pool._waiters
        waiter = Call(float("inf"))
        world.pool.settle(waiter)
        with pytest.raises(TransportClosed):
            waiter.outcome()


@pytest.mark.promise(1, 9)
def test_the_pool_serves_after_any_history() -> None:
    """It has its own thread, since an exception out of a trace function stays in the context of later ones."""
    chosen = settings(max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    with ThreadPoolExecutor(1) as own:
        own.submit(run_state_machine_as_test, Histories, settings=chosen).result()


def test_an_exception_while_a_connection_is_handed_over_delays_no_other_call() -> None:
    """The exception comes at each line in turn. Guards against a connection that nobody has, and that counts until the
    end of the call for which it was meant."""
    at = 0
    while True:
        world = World()
        world.pool = pool = Pool(1, world.attempt)
        serves(world)
        assert pool._idle
        interested, other = Call(time.monotonic() + TIMEOUT), Call(time.monotonic() + TIMEOUT)
        error = interrupted(partial(pool.settle, interested), at, "fairlane/backends/postgres/")
        if error is None:
            break
        pool.leave(interested)
        pool.settle(other)
        for attempt in world.going():
            attempt.end(world.connection())
        pool.settle(other)
        assert other.has_outcome, f"after an exception at {error}"
        at += 1
    assert at > 15, "nothing was interrupted"
