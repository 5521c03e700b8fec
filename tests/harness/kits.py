"""What the tests must know of each backend beyond its transports.

To add a backend: a class with its raw driver calls, and its line in `KITS`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import fairlane
from fairlane import Lease, migrate
from fairlane.backends import MANIFESTS
from fairlane.backends.memory import executor as memory
from fairlane.backends.stored import ACK, CLAIM, NACK, PUBLISH, Call, Operation, Rows
from fairlane.capabilities import Capabilities

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kit:
    """One backend as the tests see it. Methods block, and open a connection of their own for each call."""

    backend: ClassVar[str]
    variable: ClassVar[str | None] = None
    """The environment variable with the URL of the server; None if the backend needs none."""

    folder: Path
    """Where a test may keep files."""

    server_url: str | None = None
    """The URL of a server of the test's own, instead of the one of the environment."""

    @property
    def caps(self) -> Capabilities:
        return MANIFESTS[self.backend].capabilities

    @property
    def missing(self) -> str | None:
        """Why this backend cannot be tested here; None if it can."""
        if self.variable is None or os.environ.get(self.variable):
            return None
        return f"{self.variable} is not set: `make test` starts the servers, or `python -m tests.servers run -- pytest`"

    def url(self, queue: str) -> str:
        """The URL of the queue's database."""
        return self.server_url or os.environ[self.variable or ""]

    def options(self, twin: str) -> dict[str, Any]:
        """Options of a transport that let many calls run at once."""
        return {}

    def create(self, queue: str, head_start: float | str | None = None) -> None:
        """Make a queue."""
        migrate.upgrade(self.url(queue), queue=queue, head_start=head_start)

    def drop(self, queue: str) -> None:
        """Remove a queue and all that is in it."""
        migrate.downgrade(self.url(queue), queue=queue, revision="base")

    batches: ClassVar[bool] = True
    """Whether `batch` works; if not, bulk work goes through a transport, one operation at a time."""

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        """Carry out many stored operations in order, in few round trips."""
        raise NotImplementedError

    def settle(self, queue: str) -> None:
        """Let the server take note of much that has changed, as it would by itself in a while."""

    def now(self, queue: str) -> datetime:
        """The time by the clock that leases run by."""
        raise NotImplementedError

    def leftovers(self, queue: str) -> dict[str, int]:
        """How many rows, keys or documents there are, by table, collection or key."""
        raise NotImplementedError


class MemoryKit(Kit):
    backend = "memory"

    def url(self, queue: str) -> str:
        return "memory://"

    def create(self, queue: str, head_start: float | str | None = None) -> None:
        if head_start is not None:
            memory._shared[queue] = memory.MemoryStore(head_start)

    def drop(self, queue: str) -> None:
        memory._shared.pop(queue, None)

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        store = memory.shared_store(queue)
        return [store.perform(call.operation.name, dict(call.arguments)) for call in calls]

    def now(self, queue: str) -> datetime:
        return EPOCH + timedelta(microseconds=memory.shared_store(queue).now())

    def leftovers(self, queue: str) -> dict[str, int]:
        store = memory.shared_store(queue)
        lines = sum(len(line) for line in store._lines)
        return {"groups": len(store._groups), "lines": lines, "dedup": len(store._dedup)}


class SqliteKit(Kit):
    backend = "sqlite"

    def url(self, queue: str) -> str:
        return f"sqlite:///{self.folder}/queue.db"

    def drop(self, queue: str) -> None:
        """Do nothing: the file goes with the test's folder."""

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "queue.db", isolation_level=None, timeout=30)

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.shared.sqlite_statements import Statements

        statements = Statements(queue, "sqlite")
        connection = self.connect()
        connection.row_factory = sqlite3.Row
        connection.execute("begin immediate")
        answers: list[Rows] = [connection.execute(statements[call], call.arguments).fetchall() for call in calls]
        connection.execute("commit")
        connection.close()
        return answers

    def now(self, queue: str) -> datetime:
        return datetime.now(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        connection = self.connect()
        tables = [f"{queue}_messages", f"{queue}_groups"]
        counts = {table: connection.execute(f'select count(*) from "{table}"').fetchone()[0] for table in tables}
        connection.close()
        return counts


class PostgresKit(Kit):
    backend = "postgres"
    variable = "FAIRLANE_TEST_POSTGRES_URL"

    def connect(self, queue: str) -> Any:
        import psycopg

        return psycopg.connect(self.url(queue), autocommit=True)

    def options(self, twin: str) -> dict[str, Any]:
        return {"max_connections": 16}

    def drop(self, queue: str) -> None:
        with self.connect(queue) as connection:
            connection.execute(f'drop schema if exists "{queue}" cascade')

    # Calls of one kind in a row become one statement; claim looks at `n`, or it would be carried out only once.
    BATCHES: ClassVar[dict[Operation, tuple[tuple[str, str], ...]]] = {
        PUBLISH: (("p_group_id", "text"), ("p_event", "json"), ("p_priority", "int"), ("p_dedup_id", "text")),
        CLAIM: (("p_worker_id", "text"), ("p_visibility", "float"), ("p_min_priority", "int")),
        ACK: (("p_group_id", "text"), ("p_token", "uuid")),
        NACK: (("p_group_id", "text"), ("p_token", "uuid"), ("p_delay", "float")),
    }

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        import psycopg
        from psycopg.rows import dict_row

        answers: list[Rows] = []
        with self.connect(queue) as connection:
            for start in range(0, len(calls), 500):
                part = calls[start : start + 500]
                operation = part[0].operation
                parameters = self.BATCHES[operation]
                arrays = ", ".join(f"%s::{kind}[]" for _, kind in parameters)
                names = ", ".join(name for name, _ in parameters)
                source = f"unnest({arrays}) with ordinality as c ({names}, n)"
                if operation is CLAIM:
                    call = f'lateral "{queue}".claim(left(n::text, 0) || {names}) as r'
                    text = f"select r.group_id, r.seq, r.event::text, r.token from {source}, {call} order by n"
                else:
                    text = f'select "{queue}".{operation.name}({names}) from {source}'
                values = [[call.arguments[name] for call in part] for name, _ in parameters]
                cursor = psycopg.Cursor(connection, row_factory=dict_row)
                answers += [[row] for row in cursor.execute(text, values).fetchall()]
        return answers

    def settle(self, queue: str) -> None:
        """Vacuum and analyze, as autovacuum would within a minute."""
        with self.connect(queue) as connection:
            connection.execute(f'vacuum analyze "{queue}".messages, "{queue}".groups')

    def now(self, queue: str) -> datetime:
        with self.connect(queue) as connection:
            now: datetime = connection.execute("select clock_timestamp()").fetchone()[0]
        return now.astimezone(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        with self.connect(queue) as connection:
            return {
                table: connection.execute(f'select count(*) from "{queue}".{table}').fetchone()[0]
                for table in ("messages", "groups")
            }


class RedisKit(Kit):
    backend = "redis"
    variable = "FAIRLANE_TEST_REDIS_URL"

    def connect(self, queue: str) -> Any:
        import redis

        return redis.Redis.from_url(self.url(queue))

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.redis.wire import Calls, rows_of

        commands = Calls(queue)
        answers: list[Rows] = []
        with self.connect(queue) as client:
            for start in range(0, len(calls), 500):
                part = calls[start : start + 500]
                pipeline = client.pipeline(transaction=False)
                for call in part:
                    pipeline.execute_command(*commands.command(call))
                replies = pipeline.execute()
                answers += [rows_of(call.operation, reply) for call, reply in zip(part, replies, strict=True)]
        return answers

    def now(self, queue: str) -> datetime:
        with self.connect(queue) as client:
            seconds, micros = client.time()
        return EPOCH + timedelta(seconds=seconds, microseconds=micros)

    def leftovers(self, queue: str) -> dict[str, int]:
        size = {b"string": "strlen", b"hash": "hlen", b"zset": "zcard", b"list": "llen", b"set": "scard"}
        with self.connect(queue) as client:
            keys = list(client.scan_iter(match=f"{{{queue}}}:*", count=10_000))
            return {
                key.decode(): getattr(client, size[client.type(key)])(key)
                for key in keys
                if not key.endswith(b":meta")  # belongs to the queue, not to a group
            }


class RedisClusterKit(RedisKit):
    variable = "FAIRLANE_TEST_REDIS_CLUSTER_URL"

    def connect(self, queue: str) -> Any:
        """A client of the one node that holds the queue: all of its keys are in one slot."""
        import redis

        host, _, port = self.url(queue).rpartition("@")[2].rpartition("/")[2].split(",")[0].partition(":")
        with redis.RedisCluster(host=host, port=int(port or 6379)) as cluster:
            node = cluster.get_node_from_key(f"{{{queue}}}:meta")
        return redis.Redis(host=node.host, port=node.port)


class RqliteKit(Kit):
    backend = "rqlite"
    variable = "FAIRLANE_TEST_RQLITE_URL"

    def send(self, queue: str, statements: Sequence[tuple[str, Any]], *, reads: bool = False) -> list[Rows]:
        """Send statements in one request; answers with the rows of each."""
        from fairlane.backends.rqlite.executor import RqliteExecutor
        from fairlane.backends.rqlite.wire import Batch, delivered
        from fairlane.program import run

        executor = RqliteExecutor.from_url(self.url(queue), queue, timeout=60)
        try:
            rows: list[Rows] = run(delivered(Batch(tuple(statements), reads), repeatable=False), executor.execute)
            return rows
        finally:
            executor.close()

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.shared.sqlite_statements import Statements

        statements = Statements(queue, "rqlite")
        answers: list[Rows] = []
        for start in range(0, len(calls), 200):  # all other requests wait for one, so keep it short
            texts = [(statements[call], {"p_call_id": None, **call.arguments}) for call in calls[start : start + 200]]
            answers += self.send(queue, [(statements[Call(Operation("clock", ()), {})], {}), *texts])[1:]
        return answers

    def now(self, queue: str) -> datetime:
        # without an argument the leader asks its clock; with 'now' it would be told a rounded time
        clock = "select cast((julianday() - 2440587.5) * 86400000000.0 as integer) as now"
        return EPOCH + timedelta(microseconds=self.send(queue, [(clock, {})], reads=True)[0][0]["now"])

    def leftovers(self, queue: str) -> dict[str, int]:
        tables = [f"{queue}_messages", f"{queue}_groups"]
        counts = self.send(queue, [(f'select count(*) as n from "{table}"', {}) for table in tables], reads=True)
        return {table: rows[0]["n"] for table, rows in zip(tables, counts, strict=True)}


class SqsKit(Kit):
    backend = "sqs"
    variable = "FAIRLANE_TEST_SQS_URL"
    batches = False

    def now(self, queue: str) -> datetime:
        return datetime.now(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        from fairlane.backends.sqs.address import parse
        from fairlane.backends.sqs.executor import make_client

        client = make_client(parse(self.url(queue)))
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        url = client.get_queue_url(QueueName=f"{queue}.fifo")["QueueUrl"]
        counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        client.close()
        return {name: int(counts[name]) for name in names}


class MongoKit(Kit):
    backend = "mongo"
    variable = "FAIRLANE_TEST_MONGO_URL"

    def connect(self, queue: str) -> Any:
        import pymongo

        return pymongo.MongoClient(self.url(queue))

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        if all(call.operation is PUBLISH for call in calls):
            return self._publish(queue, [dict(call.arguments) for call in calls])
        answers: list[Rows] = []
        with fairlane.connect(self.url(queue), queue) as transport:
            for call in calls:
                answers.append(self._perform(transport, **call.arguments, operation=call.operation))
                if not answers[-1]:
                    break  # nothing is deliverable: the rest would be told the same
        return answers

    def _perform(self, transport: Any, operation: Operation, **arguments: Any) -> Rows:
        if operation is CLAIM:
            lease = transport.claim(arguments["p_worker_id"], arguments["p_visibility"], arguments["p_min_priority"])
            if lease is None:
                return []
            event = json.dumps(lease.event)
            return [{"group_id": lease.group_id, "seq": lease.seq, "event": event, "token": lease.token}]
        held = Lease(arguments["p_group_id"], None, 0, arguments["p_token"], 1, EPOCH, EPOCH)
        getattr(transport, operation.name)(held, *([arguments["p_delay"]] if operation is NACK else []))
        return [{"group_id": held.group_id}]

    def _publish(self, queue: str, publishes: list[dict[str, Any]]) -> list[Rows]:
        """Write what publishing one after the other would leave."""
        with self.connect(queue) as client:
            database = client.get_default_database("fairlane")
            meta = database[f"{queue}_meta"].find_one_and_update({"_id": "queue"}, {"$inc": {"seq": len(publishes)}})
            messages, groups, now = [], {}, self.now(queue)
            for seq, item in enumerate(publishes, meta["seq"] + 1):
                message = {"_id": seq, "group_id": item["p_group_id"], "event": item["p_event"]}
                messages.append({**message, "priority": item["p_priority"], "published_at": now})
                first = {"priority": item["p_priority"], "ready_at": EPOCH + timedelta(milliseconds=seq)}
                free = {"token": None, "worker_id": None, "leased": None, "attempts": 0, "acked": None, "touched": seq}
                groups.setdefault(item["p_group_id"], {"_id": item["p_group_id"], **first, **free})
            database[f"{queue}_messages"].insert_many(messages)
            known = {group["_id"] for group in database[f"{queue}_groups"].find({}, ("_id",))}
            if new := [group for name, group in groups.items() if name not in known]:
                database[f"{queue}_groups"].insert_many(new)
        return [[{"seq": message["_id"]}] for message in messages]

    def now(self, queue: str) -> datetime:
        with self.connect(queue) as client:
            now: datetime = client.admin.command("hello")["localTime"]
        return now.replace(tzinfo=UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        with self.connect(queue) as client:
            database = client.get_default_database("fairlane")
            names = [f"{queue}_groups", f"{queue}_messages"]
            return {name: database[name].count_documents({}) for name in names}


class LibsqlKit(Kit):
    backend = "libsql"
    variable = "FAIRLANE_TEST_LIBSQL_URL"

    def options(self, twin: str) -> dict[str, Any]:
        return {"retry_seconds": 2.0}  # tests of a server that is down wait for the end of it, many times

    def send(self, queue: str, statements: Sequence[tuple[str, Any]], *, reads: bool = False) -> list[Rows]:
        """Send statements in one atomic batch, again while others write; answers with the rows of each."""
        import asyncio

        from libsql_client import LibsqlError

        from fairlane.backends.libsql.address import locate
        from fairlane.backends.libsql.connections import Client

        async def send() -> list[Rows]:
            client = Client(locate(self.url(queue), {"timeout": 60}))
            try:
                for left in range(100, -1, -1):
                    try:
                        results = await client.run(statements, writes=not reads)
                        return [[row.asdict() for row in result.rows] for result in results]
                    except LibsqlError as error:
                        if error.code != "SQLITE_BUSY" or not left:
                            raise
                    await asyncio.sleep(0.02)
                raise AssertionError
            finally:
                await client.close()

        return asyncio.run(send())

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.libsql.wire import Wire

        wire = Wire(queue, "", 0)
        answers: list[Rows] = []
        for start in range(0, len(calls), 1000):
            part = [Call(call.operation, {"p_call_id": None, **call.arguments}) for call in calls[start : start + 1000]]
            answers += self.send(queue, [wire.parts(call)[0] for call in part])
        return answers

    def now(self, queue: str) -> datetime:
        clock = "select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000 as now"
        return EPOCH + timedelta(microseconds=self.send(queue, [(clock, {})], reads=True)[0][0]["now"])

    def leftovers(self, queue: str) -> dict[str, int]:
        tables = [f"{queue}_messages", f"{queue}_groups"]
        counts = self.send(queue, [(f'select count(*) as n from "{table}"', {}) for table in tables], reads=True)
        return {table: rows[0]["n"] for table, rows in zip(tables, counts, strict=True)}


KITS: dict[str, type[Kit]] = {
    "memory": MemoryKit,
    "sqlite": SqliteKit,
    "postgres": PostgresKit,
    "redis": RedisKit,
    "redis-cluster": RedisClusterKit,
    "mongo": MongoKit,
    "libsql": LibsqlKit,
    "rqlite": RqliteKit,
    "sqs": SqsKit,
}
"""By the name in the test's id."""
