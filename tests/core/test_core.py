"""The small parts below the backends: URLs, the environment, templates, programs, operations, the in-memory store."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import UTC, datetime
from typing import Any

import jinja2
import pytest

from fairlane import (
    BackendUnavailable,
    ConfigurationError,
    InMemoryTransport,
    JsonCodec,
    LeaseLost,
    MemoryStore,
    SchemaNotReady,
    migrate,
    templates,
)
from fairlane.backends import MANIFESTS, manifest_of
from fairlane.backends.stored import REVISION, Call, ProcedureCore, Rows
from fairlane.contract import CLIENT_REVISION, check_head_start, check_queue
from fairlane.environ import resolve_url, url_from
from fairlane.model import Revision
from fairlane.operations import Operations
from fairlane.program import Sleep, run, run_async
from fairlane.urls import host_of, options_of, scheme_of, split_url
from tests.harness import held

# URLs


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://user:secret@db.example:5432/app", "db.example:5432"),
        ("postgresql://user:se%40cret@db:5432/app?x=1", "db:5432"),
        ("postgresql://user:se@cret@db/app", "db"),
        ("postgresql://user:se/cret@db/app", "db"),
        ("postgresql://user:secret?x@db/app", "db"),
        ("postgresql://user:secret#x@db/app", "db"),
        ("postgresql://user:se/cr?et@db/app", "db"),
        ("postgresql://user:se/cr#et@db:1/app?x=1", "db:1"),
        ("postgresql://db:1,other:2/app?x=a@b", "db:1,other:2"),
        ("redis://:secret@127.0.0.1:6379/0", "127.0.0.1:6379"),
        ("redis://[::1]:6379/0", "[::1]:6379"),
        ("rqlite://u:secret@a:4001,b:4001", "a:4001,b:4001"),
        ("sqlite:///queue.db", "queue.db"),
        ("sqlite:////tmp/queue.db?x=secret", "/tmp/queue.db"),
        ("postgresql:///app", "app"),
        ("sqlite:////home/me@work/q.db", "/home/me@work/q.db"),
        ("memory://", "localhost"),
    ],
)
def test_host_of_a_url_never_shows_the_password(url: str, host: Any) -> None:
    shown = host_of(url)
    assert "secret" not in shown
    assert "cret" not in shown
    assert shown == host


@pytest.mark.parametrize("url", ["", "queue.db", "/tmp/x", "//host", "1a://x", "secret@host", None, 7])
def test_a_url_without_a_scheme_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        scheme_of(url)
    assert "secret" not in str(caught.value)


def test_schemes_are_compared_without_case_and_belong_to_one_backend() -> None:
    assert scheme_of("PostgreSQL://x") == "postgresql"
    assert scheme_of("redis+cluster://x") == "redis+cluster"
    schemes = [scheme for entry in MANIFESTS.values() for scheme in entry.schemes]
    assert len(schemes) == len(set(schemes))
    for name, entry in MANIFESTS.items():
        assert all(manifest_of(scheme).name == name for scheme in entry.schemes)


def test_options_of_a_url_are_its_query() -> None:
    assert options_of("sqlite:///q.db?a=1&b=&a=2%20") == {"a": "2 ", "b": ""}


@pytest.mark.parametrize(
    "authority", ["", "a", "a:1,[::1]:2,b", "[::1],[::2]:2", "u:p@[::1]:7000", "u:[p@a,b:1", "u:]p@a"]
)
def test_a_url_may_name_several_hosts_of_every_kind(authority: Any) -> None:
    """Guards against `urllib`: its newer versions accept brackets only if there is a single host."""
    parts = split_url(f"redis+cluster://{authority}/0?a=1#end")
    assert tuple(parts) == ("redis+cluster", authority, "/0", "a=1", "end")
    assert options_of(f"redis+cluster://{authority}?a=1") == {"a": "1"}


# The environment


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, None),
        ({"FAIRLANE_URL": "redis://a"}, "redis://a"),
        ({"FAIRLANE_URL": ""}, None),
        ({"STM_TRANSPORT_BACKEND": "memory"}, "memory://"),
        ({"STM_TRANSPORT_BACKEND": " Redis ", "FAIRLANE_REDIS_URL": "redis://a"}, "redis://a"),
        ({"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_URL": "redis://a"}, "redis://a"),
        ({"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_REDIS_URL": "redis://a", "FAIRLANE_URL": "redis://a"}, "redis://a"),
        ({"FAIRLANE_URL": "redis://a", "FAIRLANE_POSTGRES_URL": "postgresql://b"}, "redis://a"),
        ({"STM_TRANSPORT_BACKEND": "postgres", "FAIRLANE_POSTGRES_URL": "postgresql://b", "FAIRLANE_REDIS_URL": "x"},
         "postgresql://b"),
    ],
)  # fmt: skip
def test_the_environment_chooses(env: Any, url: str) -> None:
    assert url_from(env) == url


@pytest.mark.parametrize(
    "env",
    [
        {"STM_TRANSPORT_BACKEND": "nothing"},
        {"STM_TRANSPORT_BACKEND": "redis"},
        {"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_REDIS_URL": "redis://:secret@a", "FAIRLANE_URL": "redis://b"},
        {"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_REDIS_URL": "postgresql://:secret@a"},
        {"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_URL": "postgresql://:secret@a"},
        {"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_REDIS_URL": "secret"},
    ],
)
def test_an_environment_that_contradicts_itself_is_refused(env: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        url_from(env)
    assert "secret" not in str(caught.value)


def test_a_given_url_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STM_TRANSPORT_BACKEND", "nothing")
    assert resolve_url("memory://") == "memory://"
    monkeypatch.delenv("STM_TRANSPORT_BACKEND")
    monkeypatch.delenv("FAIRLANE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="FAIRLANE_URL"):
        resolve_url(None)


# Names of queues, backends, templates


@pytest.mark.parametrize("name", ["a", "fairlane", "a_1", "a" * 31, "pg", "publics", "sqs", "select"])
def test_names_of_queues(name: str) -> None:
    assert check_queue(name) == name


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1, "1"), (1.0, "1"), ("0", "0"), (0.25, "0.25"), ("1e-6", "0.000001"), (86400, "86400"), ("always", "always")],
)
def test_a_head_start_is_kept_in_plain_decimals(given: Any, kept: Any) -> None:
    """SQL, Lua and people must be able to read it."""
    assert check_head_start(given) == kept


@pytest.mark.parametrize(
    "given", [-1, -0.1, 86400.5, math.nan, math.inf, True, None, "", "ALWAYS", "1 s", "nan", [], 10**400]
)
def test_a_bad_head_start_is_refused_everywhere(given: Any) -> None:
    with pytest.raises(ValueError, match="head_start must be 0 to 86400 seconds, or always"):
        check_head_start(given)
    with pytest.raises(ValueError, match="head_start must be"):
        MemoryStore(given)
    if given is not None:
        with pytest.raises(ConfigurationError, match="head_start must be"):
            migrate.upgrade("sqlite:///nowhere/queue.db", head_start=given)


def test_a_scheme_without_a_backend_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="known are memory"):
        manifest_of("nothing")


def test_identifiers_and_strings_are_quoted() -> None:
    assert templates.ident('a"b') == '"a""b"'
    assert templates.literal("a'b") == "'a''b'"


def test_a_template_with_an_undefined_variable_fails() -> None:
    with pytest.raises(jinja2.UndefinedError):
        templates.render("procedures/sqlite/queue_status.sql.j2")


def test_a_statement_has_no_comments() -> None:
    text = templates.statement("procedures/sqlite/queue_status.sql.j2", queue="orders")
    assert "--" not in text
    assert '"orders_queue_status"' in text


# Programs


def program() -> Any:
    """Send two requests, wait in between, and survive an error."""
    first = yield "first"
    yield Sleep(0)
    try:
        yield "fails"
    except KeyError:
        second = yield "second"
    return [first, second]


def test_programs_are_driven_alike_in_both_ways() -> None:
    asked = []

    def execute(request: Any) -> Any:
        asked.append(request)
        if request == "fails":
            raise KeyError
        return request

    async def execute_async(request: Any) -> Any:
        return execute(request)

    assert run(program(), execute) == asyncio.run(run_async(program(), execute_async)) == ["first", "second"]
    assert asked == ["first", "fails", "second"] * 2


def test_a_cancelled_program_is_told_and_ended() -> None:
    ended = []

    def waiting() -> Any:
        try:
            yield "never"
        finally:
            ended.append(True)

    async def main() -> None:
        task = asyncio.ensure_future(run_async(waiting(), lambda _: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == [True]


# Operations


def nothing(request: Call) -> Rows:
    return []


class StartingCore(ProcedureCore):
    """The server is not up at first."""

    def __init__(self, failures: Any, revision: Any) -> None:
        super().__init__("orders")
        self.failures, self.found = failures, revision

    def revision(self) -> Any:
        yield Call(REVISION, {})
        if self.failures:
            self.failures -= 1
            raise BackendUnavailable("redis", "host", "refused")
        return self.found


def test_a_start_is_repeated_with_growing_pauses_until_the_server_is_up() -> None:
    operations = Operations(StartingCore(4, Revision(CLIENT_REVISION, CLIENT_REVISION)), JsonCodec())
    pauses = []
    program = operations.start(10)
    try:
        request = next(program)
        while True:
            if isinstance(request, Sleep):
                pauses.append(request.seconds)
            request = program.send([])
    except StopIteration:
        pass
    assert len(pauses) == 4
    assert pauses == sorted(pauses)


def test_a_start_gives_up_after_its_time() -> None:
    with pytest.raises(BackendUnavailable):
        run(Operations(StartingCore(10**6, None), JsonCodec()).start(0.1), nothing)


@pytest.mark.parametrize(("found", "serves"), [("0000", "0000"), ("0001", "0001"), ("0009", "0005")])
def test_a_revision_that_does_not_fit_is_refused_at_once(found: Any, serves: Any) -> None:
    with pytest.raises(SchemaNotReady) as caught:
        run(Operations(StartingCore(0, Revision(found, serves)), JsonCodec()).start(10), nothing)
    assert (caught.value.found, caught.value.needed) == (found, CLIENT_REVISION)


def test_a_newer_revision_that_still_serves_is_fine() -> None:
    run(Operations(StartingCore(0, Revision("0009", "0001")), JsonCodec()).start(0), nothing)


# The in-memory store


def test_memory_stores_are_shared_by_name_unless_given() -> None:
    with InMemoryTransport(queue="unit_shared") as one, InMemoryTransport(queue="unit_shared") as two:
        one.publish("g", 1)
        assert two.claim("w", 30) is not None
    with InMemoryTransport(MemoryStore()) as one, InMemoryTransport(MemoryStore()) as two:
        one.publish("g", 1)
        assert two.claim("w", 30) is None


def test_a_memory_store_that_was_reset_is_as_a_new_one() -> None:
    """Tests of an application share one store. A test must see nothing of the test before, and no old lease may
    count."""
    store = MemoryStore.shared("unit_reset")
    with InMemoryTransport(queue="unit_reset") as queue:
        queue.publish("g", 1, 3, dedup_id="once")
        late = held(queue.claim("w", 30))
        store.advance(1e9)
        store.reset()
        with pytest.raises(LeaseLost):
            queue.ack(late)
        assert queue.inspect.queue().messages == 0
        assert queue.publish("g", 2, dedup_id="once") == 1
        lease = held(queue.claim("w", 30))
        assert (lease.event, lease.attempts) == (2, 1)
        assert abs((lease.published_at - datetime.now(UTC)).total_seconds()) < 5


def test_the_clock_of_a_memory_store_can_be_moved_forward_only() -> None:
    store = MemoryStore()
    with InMemoryTransport(store) as queue:
        queue.publish("g", 1)
        first = held(queue.claim("w", 30))
        store.advance(29)
        assert queue.claim("w", 30) is None
        store.advance(1)
        second = held(queue.claim("w", 30))
        assert second.attempts == 2
        queue.nack(second, 3600)
        store.advance(3600)
        assert held(queue.claim("w", 30)).attempts == 3
    assert first.expires_at > first.published_at
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds must be"):
            store.advance(wrong)


def test_memory_lines_do_not_grow_with_what_is_finished() -> None:
    """Every claim, extend and nack leaves a stale entry. Stale entries must be removed before there are far more of
    them than valid ones."""
    store = MemoryStore()
    with InMemoryTransport(store) as queue:
        for n in range(20):
            queue.publish(f"g{n}", n)
        for _ in range(2000):
            queue.nack(queue.extend(held(queue.claim("w", 30)), 3600))
        assert sum(len(line) for line in store._lines) < 200


def test_memory_serves_many_threads() -> None:
    with InMemoryTransport(MemoryStore()) as queue:

        def publish(number: Any) -> None:
            for n in range(200):
                queue.publish(f"g{number}", n)

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert queue.inspect.queue().messages == 1600
        assert len({m.seq for n in range(8) for m in queue.inspect.messages(f"g{n}", limit=1000)}) == 1600
