"""The file of a transport: URLs, wrong files, locks of other processes, forks and the application's connections."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import itertools
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import aiosqlite
import pytest

import fairlane
from fairlane import migrate
from fairlane.backends.sqlite import connections
from fairlane.backends.sqlite.address import locate
from fairlane.backends.sqlite.executor import AsyncSqliteExecutor, SqliteExecutor
from fairlane.backends.sqlite.file import CHECKPOINT_PAGES
from fairlane.backends.sqlite.wire import Statement
from fairlane.backends.stored import QUEUE_STATUS, REVISION, Call
from fairlane.errors import (
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    FairlaneError,
    LeaseLost,
    SchemaNotReady,
    TransportClosed,
)
from tests.harness import held


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/q.db"
    migrate.upgrade(made)
    return made


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def writer_of(queue: fairlane.Transport) -> Any:
    """The connection with which the transport writes."""
    return cast(SqliteExecutor, queue._executor)._writer


def level_of(connection: sqlite3.Connection) -> int:
    """The current level of `synchronous`. Each call has its own text: a cached statement would give the old level."""
    text = f"pragma synchronous -- {uuid4()}"
    return int(sqlite3.Connection.execute(connection, text).fetchall()[0][0])


async def waits_for_the_disk(url: str, twin: str) -> set[str]:
    """The operations whose commits wait for the disk. Each operation runs after each other one."""
    queue: Any = fairlane.connect(url) if twin == "sync" else await fairlane.connect_async(url)
    found: dict[str, set[bool]] = {}

    async def call(operation: Any, *arguments: Any) -> Any:
        answer = getattr(queue, operation)(*arguments)
        answer = await answer if twin == "async" else answer
        writer = queue._executor._writer
        connection = writer._connection if twin == "sync" else writer._opening.result()._conn
        found.setdefault(operation, set()).add(level_of(connection) >= 2)
        return answer

    for number in range(40):
        await call("publish", f"g{number}", 0)
    lease = None
    for first, second in itertools.product(("publish", "claim", "ack", "nack", "extend"), repeat=2):
        for operation in (first, second):
            if operation == "publish":
                await call("publish", "g", 0)
            elif operation == "claim":
                lease = await call("claim", "w", 60)
            else:
                lease = lease or await call("claim", "w", 60)
                await call(operation, lease, *((60,) if operation == "extend" else ()))
                lease = lease if operation == "extend" else None
    assert all(len(answers) == 1 for answers in found.values()), "it depends on what came before"
    answer = queue.close()
    if twin == "async":
        await answer
    return {operation for operation, answers in found.items() if True in answers}


class TestUrls:
    def test_relative_and_absolute_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert locate("sqlite:///q.db", {}).path == tmp_path / "q.db"
        assert locate("sqlite:///data/q.db", {}).path == tmp_path / "data/q.db"
        assert locate(f"sqlite:///{tmp_path}/q.db", {}).path == tmp_path / "q.db"

    @pytest.mark.parametrize("name", ["a b.db", "a?b.db", "a#b.db", "a%b.db", "ü.db", "q&mode=ro.db", "a'b.db", "x:y"])
    def test_escaped_names_are_names(self, tmp_path: Path, name: str) -> None:
        from urllib.parse import quote

        url = f"sqlite:///{tmp_path}/{quote(name)}"
        with fairlane.connect(url, migrate=True) as queue:
            queue.publish("g", 1)
        assert name in names_in(tmp_path)

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///%3Amemory%3A"])
    def test_memory_is_refused_and_the_right_scheme_named(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="memory://"):
            fairlane.connect(url)

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("sqlite://q.db", "third slash"),
            ("sqlite://host/q.db", "third slash"),
            ("sqlite:///a%00b.db", "name of a file"),
            ("sqlite:///folder/", "name of a file"),
            ("sqlite:///q.db?synchronous=maybe", "synchronous must be"),
            ("sqlite:///q.db?synchronous=off", "synchronous must be"),
            ("sqlite:///q.db?busy_timeout=-1", "busy_timeout must be"),
            ("sqlite:///q.db?busy_timeout=nan", "busy_timeout must be"),
            ("sqlite:///q.db?mode=ro", "no option mode"),
        ],
    )
    def test_mistakes_in_a_url_are_named(self, url: str, said: Any) -> None:
        with pytest.raises(ConfigurationError, match=said):
            fairlane.connect(url)

    def test_a_change_of_folder_does_not_move_the_queue(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with fairlane.connect("sqlite:///q.db", migrate=True) as queue:
            monkeypatch.chdir("/")
            queue.publish("g", 1)
            assert queue.inspect.queue().messages == 1

    def test_options_of_the_url_and_of_the_call_are_used(self, url: str) -> None:
        with fairlane.connect(f"{url}?synchronous=normal", busy_timeout=3) as queue:
            queue.publish("g", 1)
            connection = writer_of(queue)._connection
            assert connection.execute("pragma synchronous").fetchone()[0] == 1
            assert connection.execute("pragma journal_mode").fetchone()[0] == "wal"

    def test_commits_are_durable_unless_the_options_say_otherwise(self, url: str) -> None:
        with fairlane.connect(url) as queue:
            queue.publish("g", 1)
            assert writer_of(queue)._connection.execute("pragma synchronous").fetchone()[0] == 2

    @pytest.mark.parametrize("twin", ["sync", "async"])
    @pytest.mark.parametrize(
        ("synchronous", "waiting"),
        [
            ("full", {"publish", "ack", "nack", "extend"}),
            ("extra", {"publish", "claim", "ack", "nack", "extend"}),
            ("normal", set()),
        ],
    )
    def test_only_a_claim_may_be_lost_in_a_power_failure(
        self, url: str, twin: str, synchronous: Any, waiting: Any
    ) -> None:
        """Guards against the wrong level after a change, since one connection is used for both kinds of commit."""
        assert asyncio.run(waits_for_the_disk(f"{url}?synchronous={synchronous}", twin)) == waiting

    def test_without_wal_every_operation_waits(self, url: str) -> None:
        """Without a sync a rollback journal may leave a damaged file behind after a power failure."""
        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as other:
            other.execute("pragma journal_mode = delete").fetchall()
            other.execute("begin immediate")  # so that the journal mode cannot be changed
            with fairlane.connect(url) as queue:
                other.execute("rollback")
                queue.publish("g", 1)
                assert queue.claim("w", 60)
                connection = writer_of(queue)._connection
                assert level_of(connection) == 2
                assert connection.execute("pragma journal_mode").fetchone()[0] == "delete"

    def test_an_old_sqlite_is_refused(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
        monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
        with pytest.raises(ConfigurationError, match=r"3\.35 or newer.*3\.34\.1"):
            fairlane.connect(url)


@pytest.mark.parametrize("twin", ["sync", "async"])
class TestWrongFiles:
    def refused(self, url: str, twin: str) -> FairlaneError:
        def connect() -> object:
            if twin == "sync":
                return fairlane.connect(url, startup_timeout=0.2)
            return asyncio.run(fairlane.connect_async(url, startup_timeout=0.2))

        with pytest.raises(FairlaneError) as raised:
            connect()
        return raised.value

    def test_a_missing_file_is_a_queue_that_is_not_there_and_stays_missing(self, tmp_path: Path, twin: str) -> None:
        assert isinstance(self.refused(f"sqlite:///{tmp_path}/no.db", twin), SchemaNotReady)
        assert names_in(tmp_path) == []

    def test_an_empty_or_foreign_database_is_a_queue_that_is_not_there(self, tmp_path: Path, twin: str) -> None:
        (tmp_path / "empty.db").touch()
        with contextlib.closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
            foreign.execute("create table fairlane_settings (colour text)")
        for name in ("empty", "foreign"):
            assert isinstance(self.refused(f"sqlite:///{tmp_path}/{name}.db", twin), SchemaNotReady)

    def test_a_missing_folder_is_named(self, tmp_path: Path, twin: str) -> None:
        error = self.refused(f"sqlite:///{tmp_path}/nowhere/q.db", twin)
        assert isinstance(error, ConfigurationError)
        assert f"{tmp_path}/nowhere" in str(error)

    def test_a_folder_is_not_a_file(self, tmp_path: Path, twin: str) -> None:
        assert "is a folder" in str(self.refused(f"sqlite:///{tmp_path}", twin))

    def test_some_other_file_is_not_a_database(self, tmp_path: Path, twin: str) -> None:
        (tmp_path / "letter.txt").write_text("Dear queue, " * 1000)
        error = self.refused(f"sqlite:///{tmp_path}/letter.txt", twin)
        assert isinstance(error, ConfigurationError)
        assert "not an SQLite database" in str(error)


def test_a_damaged_file_is_not_reported_as_an_absent_server(tmp_path: Path, url: str) -> None:
    """Guards against the advice to check the server and to try again."""
    path = tmp_path / "q.db"
    path.write_bytes(path.read_bytes()[:5000])
    for action in (migrate.status, migrate.upgrade, fairlane.connect):
        with pytest.raises(BackendUnavailable, match="the file is damaged: restore a backup") as raised:
            action(url)
        assert "try again" not in str(raised.value)


@pytest.mark.parametrize("content", ["empty", "another application's"])
def test_a_look_at_a_file_without_the_queue_leaves_it_as_it_is(tmp_path: Path, content: str) -> None:
    """Guards against a `fairlane status` with a wrong path that puts another application's file into WAL mode."""
    path = tmp_path / "app.db"
    path.touch()
    if content != "empty":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("create table things (name text)")
    before = path.read_bytes()
    url = f"sqlite:///{path}"
    assert migrate.status(url).found is None
    with pytest.raises(SchemaNotReady):
        fairlane.connect(url)
    with pytest.raises(SchemaNotReady):
        asyncio.run(fairlane.connect_async(url))
    migrate.migrate(url, revision="base")
    assert path.read_bytes() == before
    migrate.upgrade(url)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        connection.execute("pragma journal_mode = delete")  # a copy by VACUUM INTO has this mode, too
    with fairlane.connect(url) as queue:
        queue.publish("g", 1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("wrong", ["nowhere/q.db", "letter.txt", "."])
def test_a_migration_says_the_same_of_wrong_files(tmp_path: Path, wrong: Any) -> None:
    (tmp_path / "letter.txt").write_text("Dear queue, " * 1000)
    with pytest.raises(ConfigurationError):
        migrate.upgrade(f"sqlite:///{tmp_path}/{wrong}")


def _as_nobody(url: str, result: multiprocessing.SimpleQueue[Any]) -> None:
    os.setgid(65534)
    os.setuid(65534)
    try:
        with fairlane.connect(url, startup_timeout=0) as queue:
            queue.publish("g", 1)
    except Exception as error:
        result.put((type(error).__name__, str(error)))
    else:
        result.put(("nothing", ""))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
@pytest.mark.parametrize("rights", [(0o755, 0o444), (0o755, 0o644), (0o755, 0o000), (0o700, 0o644)])
def test_a_file_that_may_not_be_written_is_a_typed_error(rights: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, url = Path(name), f"sqlite:///{name}/q.db"
        with fairlane.connect(url, migrate=True) as queue:
            queue.publish("g", 1)
        folder.chmod(rights[0])
        (folder / "q.db").chmod(rights[1])
        context = multiprocessing.get_context("fork")
        result = context.SimpleQueue()
        child = context.Process(target=_as_nobody, args=(url, result))
        child.start()
        kind, said = result.get()
        child.join(10)
        assert kind == "ConfigurationError", said
        assert str(folder / "q.db") in said


class TestFullAndBusy:
    def test_a_full_disk_is_backend_full_and_the_queue_still_drains(self, url: str) -> None:
        with fairlane.connect(url) as queue:
            for number in range(20):
                queue.publish(f"g{number}", "x" * 500)
            connection = writer_of(queue)._connection
            pages = connection.execute("pragma page_count").fetchone()[0]
            connection.execute(f"pragma max_page_count = {pages + 4}").fetchall()
            with pytest.raises(BackendFull):
                all(queue.publish(f"h{number}", "x" * 3000) for number in range(100))
            before = queue.inspect.queue().messages
            done = 0
            while (lease := queue.claim("w", 30)) is not None:
                queue.ack(lease)
                done += 1
            assert done == before

    @pytest.mark.parametrize("twin", ["sync", "async"])
    def test_a_file_locked_for_good_is_unavailable_after_the_timeout(self, url: str, twin: str) -> None:
        def publish() -> object:
            with fairlane.connect(url, busy_timeout=0.3) as queue:
                return queue.publish("g", 1)

        async def publish_async() -> object:
            async with await fairlane.connect_async(url, busy_timeout=0.3) as queue:
                return await queue.publish("g", 1)

        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as holder:
            holder.execute("begin immediate")
            began = time.monotonic()
            with pytest.raises(BackendUnavailable, match="locked") as raised:
                publish() if twin == "sync" else asyncio.run(publish_async())
            assert 0.25 < time.monotonic() - began < 3
            assert path_of(url) in str(raised.value)
        with fairlane.connect(url) as queue:
            assert queue.publish("g", 1) == 1

    def test_a_lock_that_ends_in_time_is_waited_for(self, url: str) -> None:
        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None, check_same_thread=False)) as holder:
            holder.execute("begin immediate")
            timer = threading.Timer(0.3, lambda: holder.execute("commit"))
            timer.start()
            with fairlane.connect(url) as queue:
                assert queue.publish("g", 1) == 1
            timer.join()

    def test_inspection_does_not_wait_for_a_writer(self, url: str) -> None:
        with fairlane.connect(url) as queue, contextlib.closing(sqlite3.connect(path_of(url))) as holder:
            queue.publish("g", 1)
            holder.execute("begin immediate")
            assert queue.inspect.queue().messages == 1

    def test_the_log_is_written_back_before_it_has_grown_far_above_its_limit(self, url: str) -> None:
        # Guards against a limit that SQLite does not take: the log would grow as long as the process runs.
        limit = CHECKPOINT_PAGES * 4096
        with fairlane.connect(url) as queue:
            for _ in range(8):
                queue.publish_many([fairlane.Message("g", "x" * 4000)] * 1000)
            assert limit / 2 < Path(f"{path_of(url)}-wal").stat().st_size < 2 * limit

    def test_a_queue_dropped_under_a_transport_is_not_there(self, url: str) -> None:
        with fairlane.connect(url) as queue:
            queue.publish("g", 1)
            migrate.downgrade(url, revision="base")
            with pytest.raises(SchemaNotReady):
                queue.publish("g", 2)

    def test_an_error_of_the_disk_is_typed_and_the_next_call_opens_the_file_again(self, url: str) -> None:
        with fairlane.connect(url) as queue:
            queue.publish("g", 1)
            writer = writer_of(queue)
            whole, writer._connection = writer._connection, Broken()
            with pytest.raises(BackendUnavailable, match="Input/output error"):
                queue.publish("g", 2)
            assert writer._connection is None
            whole.close()
            queue.publish("g", 3)


def _move_away(path: Any, then: Any) -> None:
    for each in Path(path).parent.glob(f"{Path(path).name}*"):
        each.unlink()
    if then == "another file comes in its place":
        migrate.upgrade(f"sqlite:///{path}")


class Blocking:
    """Each twin, used through blocking calls."""

    def __init__(self, url: str, twin: str) -> None:
        self._runner = asyncio.Runner() if twin == "async" else None
        self._call = self._runner.run if self._runner else lambda result: result
        self._transport = self._call(fairlane.connect_async(url)) if self._runner else fairlane.connect(url)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._call(getattr(self._transport, name)(*arguments))

    def end(self) -> None:
        self.close()
        if self._runner:
            self._runner.close()


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("then", ["nothing comes in its place", "another file comes in its place"])
def test_no_message_is_lost_in_a_file_that_was_deleted_or_replaced(
    url: str, twin: str, then: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has the old file open can still use it, but a message published there would be lost."""
    monkeypatch.setattr(connections, "CHECK_INTERVAL", 0)  # so that the transport checks the file at each call
    queue = Blocking(url, twin)
    queue.publish("g", "in the old file")
    _move_away(path_of(url), then)
    if then == "nothing comes in its place":
        with pytest.raises(SchemaNotReady):
            queue.publish("g", "nowhere")
        with pytest.raises(SchemaNotReady):
            queue.claim("w", 30)
        migrate.upgrade(url)
    queue.publish("g", "in the new file")
    with fairlane.connect(url) as other:
        lease = held(other.claim("w", 30))
        assert lease.event == "in the new file"
        queue.publish("g", "also there")
        other.ack(lease)
        assert held(other.claim("w", 30)).event == "also there", "closing the old file took the new one's log along"
    queue.end()


class Broken:
    """A connection to a disk that is gone."""

    def perform(self, *_: object) -> None:
        error = sqlite3.OperationalError(os.strerror(errno.EIO))
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
        raise error

    def close(self) -> None: ...


def test_a_closed_transport_opens_nothing(url: str) -> None:
    queue = fairlane.connect(url)
    executor = queue._executor
    queue.close()
    queue.close()
    with pytest.raises(TransportClosed):
        queue.publish("g", 1)
    with pytest.raises(TransportClosed):
        executor.execute(Call(REVISION, {}))


def _in_child(queue: fairlane.SqliteTransport, result: multiprocessing.SimpleQueue[Any]) -> None:
    parents = id(writer_of(queue)._connection)
    lease = held(queue.claim("child", 30))
    own = writer_of(queue)._connection
    queue.ack(lease)
    queue.close()
    result.put((lease.group_id, id(own) != parents))


def test_a_forked_child_opens_its_own_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.backends.shared.forks.FORK_TIMEOUT", 0.1)
    context = multiprocessing.get_context("fork")
    with fairlane.connect(url) as queue:
        for name in ("a", "b", "c"):
            queue.publish(name, 1)
        queue.ack(held(queue.claim("parent", 30)))
        result = context.SimpleQueue()
        lock = writer_of(queue)._lock
        lock.acquire()  # as if another thread of the parent held the lock for longer than a fork waits
        child = context.Process(target=_in_child, args=(queue, result))
        child.start()
        lock.release()
        assert result.get() == ("b", True)
        child.join(10)
        assert child.exitcode == 0
        lease = held(queue.claim("parent", 30))
        assert lease.group_id == "c"
        queue.ack(lease)


def _refused(queue: fairlane.SqliteTransport, result: multiprocessing.SimpleQueue[Any]) -> None:
    try:
        queue.publish("g", 1)
    except ConfigurationError as error:
        result.put(str(error))
    else:
        result.put("published")


class TestGivenConnection:
    def test_a_forked_child_is_refused(self, url: str) -> None:
        context = multiprocessing.get_context("fork")
        result = context.SimpleQueue()
        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as mine:
            queue = fairlane.SqliteTransport(mine)
            child = context.Process(target=_refused, args=(queue, result))
            child.start()
            assert "cannot be used after a fork" in result.get()
            child.join(10)
            queue.publish("g", 2)

    def test_operations_join_the_transaction_of_the_application(self, url: str) -> None:
        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as mine:
            queue = fairlane.SqliteTransport(mine)
            mine.execute("create table orders (id)")
            mine.execute("begin")
            mine.execute("insert into orders values (1)")
            queue.publish("g", 1)
            mine.execute("rollback")
            assert queue.claim("w", 30) is None
            queue.publish("g", 2)  # no transaction is open, so this commits by itself
            queue.close()
        with fairlane.connect(url) as other:
            assert held(other.claim("w", 30)).event == 2

    def test_in_a_transaction_that_python_began_the_application_commits(self, url: str) -> None:
        with contextlib.closing(sqlite3.connect(path_of(url))) as mine:
            queue = fairlane.SqliteTransport(mine)
            queue.publish("g", 1)
            mine.commit()
            lease = held(queue.claim("w", 30))
            queue.ack(lease)
            assert mine.in_transaction
            mine.rollback()
            assert held(queue.claim("w", 30)).seq == lease.seq
            mine.commit()

    def test_a_row_factory_of_the_application_does_not_matter(self, url: str) -> None:
        with contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as mine:
            mine.row_factory = sqlite3.Row
            queue = fairlane.SqliteTransport(mine)
            queue.publish("g", {"n": 1})
            assert held(queue.claim("w", 30)).event == {"n": 1}
            assert mine.execute("select 1 as one").fetchone()["one"] == 1
            mine.text_factory = bytes
            with pytest.raises(ConfigurationError, match="text_factory"):
                fairlane.SqliteTransport(mine)

    def test_a_call_on_a_locked_file_leaves_no_open_transaction(self, url: str) -> None:
        with (
            contextlib.closing(sqlite3.connect(path_of(url), isolation_level=None)) as holder,
            contextlib.closing(sqlite3.connect(path_of(url), timeout=0.1)) as mine,
        ):
            queue = fairlane.SqliteTransport(mine)
            queue.publish("g", 1)
            mine.commit()
            holder.execute("begin immediate")
            with pytest.raises(BackendUnavailable):
                queue.claim("w", 30)
            assert not mine.in_transaction

    def test_an_object_that_is_no_connection_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"sqlite3\.Connection"):
            fairlane.SqliteTransport("sqlite:///q.db")  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(ConfigurationError, match=r"aiosqlite\.Connection"):
            fairlane.AsyncSqliteTransport("sqlite:///q.db")  # type: ignore[arg-type]  # wrong on purpose

    def test_a_connection_that_is_closed_or_of_another_thread_is_a_typed_error(self, url: str) -> None:
        mine = sqlite3.connect(path_of(url))
        queue = fairlane.SqliteTransport(mine)
        with concurrent.futures.ThreadPoolExecutor() as threads, pytest.raises(ConfigurationError, match="same_thread"):
            threads.submit(queue.publish, "g", 1).result()
        mine.close()
        for call in (lambda: queue.publish("g", 1), lambda: queue.claim("w", 30), lambda: queue.inspect.queue()):
            with pytest.raises(ConfigurationError, match="keep it open"):
                call()

    async def test_an_aiosqlite_connection_that_is_closed_is_a_typed_error(self, url: str) -> None:
        async with aiosqlite.connect(path_of(url)) as mine:
            queue = fairlane.AsyncSqliteTransport(mine)
            await queue.publish("g", 1)
        for call in (queue.publish("g", 1), queue.claim("w", 30), queue.inspect.queue()):
            with pytest.raises(ConfigurationError, match="keep it open"):
                await call

    async def test_an_aiosqlite_connection_can_be_used(self, url: str) -> None:
        async with aiosqlite.connect(path_of(url), isolation_level=None) as mine:
            queue = fairlane.AsyncSqliteTransport(mine)
            await mine.execute("begin")
            await queue.publish("g", 1)
            await mine.execute("rollback")
            assert await queue.claim("w", 30) is None
            await queue.publish("g", 2)
            lease = held(await queue.claim("w", 30))
            await queue.ack(lease)
            with pytest.raises(LeaseLost):
                await queue.ack(lease)
        with pytest.raises(ConfigurationError, match="open the aiosqlite connection first"):
            fairlane.AsyncSqliteTransport(aiosqlite.connect(path_of(url)))


class TestAsync:
    async def test_cancelled_calls_leave_the_connection_whole(self, url: str) -> None:
        async with await fairlane.connect_async(url) as queue:
            for number in range(200):
                await queue.publish(f"g{number}", number)
            tasks = [asyncio.create_task(queue.claim("w", 30)) for _ in range(100)]
            for at, task in enumerate(tasks):
                if at % 3:
                    await asyncio.sleep(0)
                task.cancel() if at % 2 else None
            done = await asyncio.gather(*tasks, return_exceptions=True)
            leases = [each for each in done if not isinstance(each, BaseException)]
            assert len({held(lease).group_id for lease in leases}) == len(leases) >= 50
            for lease in leases:
                await queue.ack(held(lease))
            status = await queue.inspect.queue()
            assert status.messages == 200 - len(leases)
            assert status.ready is not None
            assert status.in_flight is not None
            assert status.ready + status.in_flight == status.messages

    async def test_the_first_caller_may_be_cancelled_while_the_file_is_opened(self, url: str) -> None:
        async with await fairlane.connect_async(url) as queue:
            reader, read = cast(AsyncSqliteExecutor, queue._executor)._reader, Call(QUEUE_STATUS, {})
            first = asyncio.create_task(reader.run(Statement.of("select 1", QUEUE_STATUS), read))
            second = asyncio.create_task(reader.run(Statement.of("select 2", QUEUE_STATUS), read))
            await asyncio.sleep(0)
            first.cancel()
            rows: Any = await second  # sqlite3.Row gives its values, not its names
            assert [tuple(row) for row in rows] == [(2,)]

    def test_a_program_that_forgot_to_close_ends(self, url: str) -> None:
        program = (
            "import asyncio, sys, fairlane\n"
            "async def main():\n"
            "    global queue\n"
            "    queue = await fairlane.connect_async(sys.argv[1])\n"
            "    await queue.publish('g', 1)\n"
            "asyncio.run(main())\n"
        )
        subprocess.run([sys.executable, "-c", program, url], check=True, timeout=20)
