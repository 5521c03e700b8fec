"""harel's transport classes on the same servers. Their documented tables or keys are filled directly."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from harel.spec.states import Event

from bench.cases import READY_MESSAGES, Case

HOUR = 3600.0


def rows_of(case: Case) -> list[tuple[str, int, int, bool]]:
    """Return (prefix, groups, messages in each, parked); `case` decides the priorities."""
    return [
        ("parked", case.parked, 1, True),
        ("low", case.low, 1, False),
        ("ready", case.ready, READY_MESSAGES, False),
    ]


class Theirs:
    """The queue of one case in harel."""

    name = "harel"
    transport: Any

    def __init__(self, case: Case, number: int, folder: Path, event: Event) -> None:
        self.case = case
        self.prefix = f"hb{uuid4().hex[:8]}{number}"
        self.folder = folder
        self.event = event
        self.payload = event.model_dump_json()
        self.fill()

    def fill(self) -> None:
        raise NotImplementedError

    def renew(self) -> bool:
        """Use a fresh connection where that makes a difference. Return whether it did."""
        return False

    def claim(self) -> Any:
        """Claim once; there is always a deliverable message."""
        return self.transport.claim("bench", 60, self.case.floor)

    def ack(self, lease: Any) -> None:
        """Finish the message."""
        self.transport.ack(lease)

    def refill(self, lease: Any) -> None:
        """Publish one message into the group of a lease."""
        self.transport.publish(lease.group_id, lease.event, self.case.floor)

    def close(self) -> None:
        """Close the connection; the server is removed with its data."""
        self.transport.close()


class TheirSqlite(Theirs):
    def fill(self) -> None:
        from harel.engine.transport.sqlite import SqliteTransport

        path = self.folder / f"{self.prefix}.db"
        self.transport = SqliteTransport(path, prefix=self.prefix)
        messages, groups = f"{self.prefix}_transport_messages", f"{self.prefix}_transport_groups"
        connection = sqlite3.connect(path, timeout=30)
        for prefix, count, depth, parked in rows_of(self.case):
            lock = ("__parked__", time.time() + HOUR) if parked else (None, None)
            connection.executemany(
                f"insert into {messages} (group_id, event, locked_by, lock_expiry) values (?, ?, ?, ?)",
                ((f"{prefix}-{n}", self.payload, *lock) for _ in range(depth) for n in range(count)),
            )
            priority = self.case.floor if prefix == "ready" else 0
            connection.executemany(
                f"insert into {groups} (group_id, priority, last_claimed_at) values (?, ?, ?)",
                # parked groups were claimed before they were parked, and the other groups were served since
                ((f"{prefix}-{n}", priority, time.time() - parked) for n in range(count)),
            )
        connection.commit()
        connection.close()


class TheirPostgres(Theirs):
    def fill(self) -> None:
        import psycopg
        from harel.engine.transport.postgres import PostgresTransport

        url = os.environ["FAIRLANE_TEST_POSTGRES_URL"]
        self.transport = PostgresTransport(psycopg.connect(url), prefix=self.prefix)
        messages, groups = f"{self.prefix}_transport_messages", f"{self.prefix}_transport_groups"
        with psycopg.connect(url, autocommit=True) as connection:
            for prefix, count, depth, parked in rows_of(self.case):
                priority = self.case.floor if prefix == "ready" else 0
                lock = ("parked", time.time() + HOUR) if parked else (None, None)
                connection.execute(
                    f"insert into {messages} (group_id, event) select %s || '-' || n, %s"
                    " from generate_series(1, %s) d, generate_series(0, %s - 1) n order by d, n",
                    (prefix, self.payload, depth, count),
                )
                connection.execute(
                    f"insert into {groups} (group_id, priority, locked_by, lock_expiry)"
                    " select %s || '-' || n, %s, %s, %s from generate_series(0, %s - 1) n",
                    (prefix, priority, *lock, count),
                )
            connection.execute(f"vacuum analyze {messages}, {groups}")

    def renew(self) -> bool:
        """Use a fresh connection, with its own server process: see `claim.py`."""
        import psycopg
        from harel.engine.transport.postgres import PostgresTransport

        self.transport.close()
        connection = psycopg.connect(os.environ["FAIRLANE_TEST_POSTGRES_URL"])
        self.transport = PostgresTransport(connection, prefix=self.prefix, create_schema=False)
        return True


class TheirRedis(Theirs):
    def fill(self) -> None:
        import redis
        from harel.engine.transport.redis import RedisTransport

        client = redis.Redis.from_url(os.environ["FAIRLANE_TEST_REDIS_URL"])
        self.transport = RedisTransport(client, prefix=self.prefix)
        until = int((time.time() + HOUR) * 1000)
        for prefix, count, depth, parked in rows_of(self.case):
            priority = self.case.floor if prefix == "ready" else 0
            for start in range(0, count, 2000):
                pipeline = client.pipeline(transaction=False)
                for n in range(start, min(count, start + 2000)):
                    group = f"{prefix}-{n}"
                    pipeline.rpush(f"{self.prefix}:q:{group}", *[self.payload] * depth)
                    pipeline.hset(f"{self.prefix}:prio", group, priority)
                    pipeline.zadd(f"{self.prefix}:ready:{priority}", {group: until if parked else 0})
                    if parked:
                        pipeline.set(f"{self.prefix}:lock:{group}", "parked", px=int(HOUR * 1000))
                pipeline.execute()

    def close(self) -> None:
        """Remove the keys, since the server may be the user's own."""
        client = self.transport._r
        batch = []
        for key in client.scan_iter(match=f"{self.prefix}:*", count=5000):
            batch.append(key)
            if len(batch) >= 5000:
                client.unlink(*batch)
                batch.clear()
        if batch:
            client.unlink(*batch)
        super().close()


THEIRS: dict[str, type[Theirs]] = {"sqlite": TheirSqlite, "postgres": TheirPostgres, "redis": TheirRedis}
