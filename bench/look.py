"""Measure what it costs to look at a large queue on SQLite: many groups of one message, and one deep group.

    make bench-look BENCH_ARGS="--messages 1000000"

It prints medians in milliseconds, of wall time and of CPU time, for the calls that `fairlane stats`, `groups` and
`peek` make through the transport.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import fairlane
from fairlane import migrate

QUEUE = "bench_look"
HOUR = 3_600_000_000


def fill(path: Path, messages: int) -> None:
    """Make this number of groups with one message each, half of them parked, and one group with the same number of
    messages."""
    numbers = f"with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {messages})"
    event, now = "x" * 100, time.time_ns() // 1000
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        connection.execute("begin")
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        for group, before in (("'deep'", 0), (f"'group ' || (n * 7919 % {messages})", messages)):
            connection.execute(
                f"{numbers} insert into {QUEUE}_messages (group_id, seq, event, published_at)"
                f" select {group}, {before} + n, '\"{event}\"', {now} - {messages} + n from numbers"
            )
        connection.execute(
            f"insert into {QUEUE}_groups (group_id, priority, head_seq, ready_at)"
            f" select group_id, 0, min(seq), min(published_at) + case when min(seq) % 2 then 0 else {HOUR} end"
            f" from {QUEUE}_messages group by group_id"
        )
        connection.execute(f"update {QUEUE}_settings set value = {2 * messages} where name = 'last_seq'")
        for _, text in triggers:
            connection.execute(text)
        connection.execute("commit")


def medians(look: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return the medians of wall time and CPU time in milliseconds."""
    passed, used = [], []
    for _ in range(calls):
        start, cpu = time.perf_counter(), time.process_time()
        look()
        passed.append(time.perf_counter() - start)
        used.append(time.process_time() - cpu)
    return statistics.median(passed) * 1e3, statistics.median(used) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=11)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        path = Path(folder) / "q.db"
        migrate.upgrade(f"sqlite:///{path}", queue=QUEUE)
        fill(path, given.messages)
        with fairlane.connect(f"sqlite:///{path}", QUEUE) as transport:
            inspect = transport.inspect
            print(inspect.queue())
            looks: dict[str, Callable[[], object]] = {
                "stats": inspect.queue,
                "groups, the first 20": lambda: inspect.groups(limit=20),
                "groups, the first 100": lambda: inspect.groups(limit=100),
                "peek, 100 of the deep group": lambda: inspect.messages("deep", limit=100),
            }
            for name, look in looks.items():
                passed, used = medians(look, given.calls)
                print(f"{name:30} {passed:8.1f} ms   {used:8.1f} ms of the processor")


if __name__ == "__main__":
    main()
