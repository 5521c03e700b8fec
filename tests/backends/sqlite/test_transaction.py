"""Several operations in one transaction of an SQLite file: one commit, all or none, and no transaction left open."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

import fairlane
from fairlane import BackendUnavailable, Message, QueueDamaged, SchemaNotReady, migrate
from tests.backends.sqlite.test_file import level_of
from tests.interruption import interrupted

HUNDRED = [Message(f"g{number % 7}", number) for number in range(100)]
BAD = [Message("g", "good"), Message("g", "bad"), Message("g", "good")]

REFUSE_BAD = """
    create trigger refuse_bad before insert on fairlane_messages when new.event = '"bad"'
    begin select raise(abort, 'no'); end
"""


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "publish_many": lambda queue, leases: queue.publish_many(HUNDRED[:3]),
    "claim_many": lambda queue, leases: queue.claim_many("w", 60, 3),
    "ack_many": lambda queue, leases: queue.ack_many(leases),
    "ack_and_claim": lambda queue, leases: queue.ack_and_claim(leases[0], "w", 60),
}


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate.upgrade(f"sqlite:///{tmp_path}/q.db")
    return tmp_path / "q.db"


def ask(path: Path, statement: str) -> Any:
    """Run a statement on another connection, which waits for no lock."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        rows = connection.execute(statement).fetchall()
    return rows[0][0] if rows else None


def stored(path: Path) -> int:
    return int(ask(path, "select count(*) from fairlane_messages"))


@pytest.fixture(params=["sync", "async"])
async def queue(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """A transport of either twin, on a file of its own."""
    url = f"sqlite:///{path}?busy_timeout=0.2"
    made: Any = fairlane.connect(url) if request.param == "sync" else await fairlane.connect_async(url)
    yield made
    await done(made.close())


def file_of(queue: Any) -> sqlite3.Connection:
    """The connection with which a transport writes."""
    writer = queue._executor._writer
    found: sqlite3.Connection = writer._connection if hasattr(writer, "_connection") else writer._opening.result()._conn
    return found


async def test_a_batch_is_one_transaction_and_waits_for_the_disk_as_its_operations_do(queue: Any) -> None:
    """Each operation runs after each other one, since SQLite cannot change the level inside a transaction."""
    leases: list[Any] = []
    levels: dict[str, set[int]] = {}
    await done(queue.publish_many(HUNDRED))

    async def publish_many() -> None:
        await done(queue.publish_many(HUNDRED))

    async def claim_many() -> None:
        leases.extend(await done(queue.claim_many("w", 60, 3)))

    async def ack_many() -> None:
        assert await done(queue.ack_many(leases)) == []
        leases.clear()

    async def ack_and_claim() -> None:
        lease = leases.pop() if leases else await done(queue.claim("w", 60))
        leases.append(await done(queue.ack_and_claim(lease, "w", 60)))

    for first, second in itertools.product((publish_many, claim_many, ack_many, ack_and_claim), repeat=2):
        for operation in (first, second):
            if operation is ack_many and not leases:
                await claim_many()
            if operation in (claim_many, ack_and_claim) and leases:
                await ack_many()
            if operation is ack_and_claim:
                leases.append(await done(queue.claim("w", 60)))
            seen: list[str] = []
            file_of(queue).set_trace_callback(seen.append)
            await operation()
            file_of(queue).set_trace_callback(None)
            assert [each for each in seen if each.lower() in ("begin immediate", "commit")] == [
                "begin immediate",
                "commit",
            ]
            levels.setdefault(operation.__name__, set()).add(level_of(file_of(queue)))
    assert levels == {"publish_many": {2}, "claim_many": {1}, "ack_many": {2}, "ack_and_claim": {2}}


async def test_an_error_in_the_middle_undoes_the_whole_batch(queue: Any, path: Path) -> None:
    ask(path, REFUSE_BAD)
    with pytest.raises(QueueDamaged):
        await done(queue.publish_many(BAD))
    assert stored(path) == 0
    assert not file_of(queue).in_transaction
    await done(queue.publish_many(BAD[:1]))
    assert stored(path) == 1


async def test_a_batch_on_a_locked_file_is_repeated_and_changes_nothing_before(queue: Any, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("begin immediate")
        with pytest.raises(BackendUnavailable, match="nothing was changed"):
            await done(queue.publish_many(HUNDRED))
        threading.Timer(0.05, holder.execute, ["rollback"]).start()
        await done(queue.publish_many(HUNDRED))
    assert stored(path) == 100


async def test_a_batch_says_that_the_queue_is_not_there(queue: Any, path: Path) -> None:
    await done(queue.publish("g", 1))
    lease = await done(queue.claim("w", 60))
    for name in ("messages", "groups", "settings"):
        ask(path, f"drop table fairlane_{name}")
    for call in CALLS.values():
        with pytest.raises(SchemaNotReady):
            await done(call(queue, [lease]))


async def test_a_cancelled_batch_is_carried_out_in_full_or_not_at_all(path: Path) -> None:
    """Guards against a task that ends between two statements, and leaves the transaction open for ever."""
    async with await fairlane.connect_async(f"sqlite:///{path}") as queue:
        for steps in range(12):
            task = asyncio.create_task(queue.publish_many(HUNDRED))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await queue.publish_many(HUNDRED)
            assert not file_of(queue).in_transaction
            assert stored(path) % 100 == 0
    assert stored(path) >= 1200


class TestOfTheApplication:
    """Batches on the application's own connection."""

    @pytest.fixture(params=["sync", "async"])
    async def mine(self, path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
        options: dict[str, Any] = {"isolation_level": None, "timeout": 0}
        twin = request.param
        made: Any = sqlite3.connect(path, **options) if twin == "sync" else await aiosqlite.connect(path, **options)
        yield made
        await done(made.close())

    def over(self, connection: Any) -> Any:
        synchronous = isinstance(connection, sqlite3.Connection)
        return fairlane.SqliteTransport(connection) if synchronous else fairlane.AsyncSqliteTransport(connection)

    async def test_a_batch_is_a_part_of_the_open_transaction(self, mine: Any, path: Path) -> None:
        queue = self.over(mine)
        await done(mine.execute("begin"))
        await done(queue.publish_many(HUNDRED))
        (lease, _) = await done(queue.claim_many("w", 60, 2))
        assert await done(queue.ack_and_claim(lease, "w", 60))
        assert mine.in_transaction
        assert stored(path) == 0
        await done(mine.execute("rollback"))
        assert await done(queue.claim_many("w", 60, 2)) == []
        await done(mine.execute("begin"))
        await done(queue.publish_many(HUNDRED))
        await done(mine.execute("commit"))
        assert stored(path) == 100

    async def test_a_batch_without_an_open_transaction_commits(self, mine: Any, path: Path) -> None:
        queue = self.over(mine)
        await done(queue.publish_many(HUNDRED))
        assert not mine.in_transaction
        assert stored(path) == 100

    async def test_a_commit_that_a_reader_prevents_leaves_no_open_transaction(self, mine: Any, path: Path) -> None:
        """Without WAL, a reader prevents commits of others, but not the statements before."""
        assert ask(path, "pragma journal_mode = delete") == "delete"
        queue = self.over(mine)
        await done(queue.claim("w", 60))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select * from fairlane_settings").fetchall()
            with pytest.raises(BackendUnavailable):
                await done(queue.publish_many(HUNDRED))
            assert not mine.in_transaction
        await done(queue.publish_many(HUNDRED))
        assert stored(path) == 100

    async def test_a_batch_that_fails_undoes_only_itself(self, mine: Any, path: Path) -> None:
        ask(path, REFUSE_BAD)
        queue = self.over(mine)
        with pytest.raises(QueueDamaged):
            await done(queue.publish_many(BAD))
        assert not mine.in_transaction
        await done(mine.execute("begin"))
        await done(queue.publish("g", "before"))
        with pytest.raises(QueueDamaged):
            await done(queue.publish_many(BAD))
        assert mine.in_transaction
        await done(queue.publish("g", "after"))
        await done(mine.execute("commit"))
        assert ask(path, "select group_concat(event) from fairlane_messages") == '"before","after"'

    def test_in_a_transaction_that_python_began_the_application_commits(self, path: Path) -> None:
        ask(path, REFUSE_BAD)
        with closing(sqlite3.connect(path)) as mine:
            queue = self.over(mine)
            queue.claim("w", 60)
            mine.commit()
            with pytest.raises(QueueDamaged):
                queue.publish_many(BAD)
            assert not mine.in_transaction
            queue.publish_many(HUNDRED)
            queue.publish_many(HUNDRED)
            assert stored(path) == 0
            mine.commit()
        assert stored(path) == 200

    @pytest.mark.parametrize("begun", [False, True])
    def test_after_an_interruption_the_transaction_is_the_applications(self, path: Path, begun: bool) -> None:
        """Guards against a savepoint or a transaction that an exception of a signal handler leaves open."""
        ask(path, "create table kept (number)")
        interruptions = 0
        for at in range(1000):
            with closing(sqlite3.connect(path, isolation_level=None)) as mine:
                queue = self.over(mine)
                queue.claim("w", 60)
                if begun:
                    mine.execute("begin")
                    mine.execute("insert into kept values (1)")
                error = interrupted(lambda q=queue: q.publish_many(HUNDRED), at, "fairlane/backends/sqlite/")  # type: ignore[misc]
                assert mine.in_transaction is begun
                if begun:
                    with pytest.raises(sqlite3.OperationalError, match="no such savepoint"):
                        mine.execute("release fairlane_batch")
                    mine.execute("commit")
            assert stored(path) % 100 == 0
            if error is None:
                break
            interruptions += 1
        assert interruptions > 10, "nothing was interrupted"
        assert int(ask(path, "select count(*) from kept")) == (interruptions + 1 if begun else 0)


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_batch_leaves_no_open_transaction(path: Path, name: str) -> None:
    """The exception is kept, since its traceback keeps everything that its frames hold."""
    kept = []
    for at in range(1000):
        with fairlane.connect(f"sqlite:///{path}?busy_timeout=0") as queue:
            queue.publish_many([Message(f"{at} {number}", 1) for number in range(7)])
            leases = queue.claim_many("w", 60, 3)
            before = stored(path)
            error = interrupted(lambda q=queue, held=leases: CALLS[name](q, held), at, "fairlane/backends/sqlite/")  # type: ignore[misc]
            ask(path, "begin immediate")
            changed = {"publish_many": 3, "claim_many": 0, "ack_many": -3, "ack_and_claim": -1}[name]
            assert stored(path) - before in (0, changed)
            queue.publish("after", at)
            assert queue.claim("w", 60) is not None
        kept.append(error)
        if error is None:
            break
    assert len(kept) > 10, "nothing was interrupted"
