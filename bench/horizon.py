"""Measure what an old snapshot costs on Postgres: the same queue in two databases, in turns, one of them with an open
transaction.

    make bench-horizon BENCH_ARGS="--cycles 100000"

A cycle is a publish, a claim and an ack. Every tenth cycle of a drained queue has an empty claim as well. It prints the
medians of the last tenth of the cycles in microseconds, and how many times as long they take beside the transaction.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql

from fairlane import migrate

QUEUE = "bench_horizon"
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
Times = dict[str, list[float]]


def database(url: str, name: str) -> str:
    """Make a database with a queue, and return its URL."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    base, _, query = url.partition("?")
    made = f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")
    migrate.upgrade(made, queue=QUEUE)
    return made


@contextmanager
def holding(url: str, kind: str) -> Iterator[None]:
    """Keep a transaction open that holds an old snapshot."""
    holder = psycopg.connect(url)
    thread = None
    if kind == "snapshot":
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from pg_class")
    elif kind == "writing":
        holder.execute("create table if not exists other (n integer)")
        holder.execute("insert into other values (1)")
    else:

        def select() -> None:
            with suppress(psycopg.errors.QueryCanceled):  # at the end
                holder.execute("select pg_sleep(86400)")

        thread = threading.Thread(target=select)
        thread.start()
        time.sleep(0.2)
    try:
        yield
    finally:
        holder.cancel()
        if thread:
            thread.join()
        holder.close()


class Side:
    """One of the two queues, and how long its calls took."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self.times: Times = defaultdict(list)
        # A server process stays on its core for a long time, and which core it is decides how long it takes to wake it.
        # So both server processes get the same core, and this one another.
        if CORES and self.connection.info.host in ("127.0.0.1", "localhost"):
            with suppress(OSError):  # the server belongs to another user
                os.sched_setaffinity(self.connection.info.backend_pid, {CORES[0]})
                os.sched_setaffinity(0, {CORES[-1]})

    def timed(self, name: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        begun = time.perf_counter()
        rows = self.connection.execute(statement.replace("@", QUEUE).encode(), arguments).fetchall()
        self.times[name].append(time.perf_counter() - begun)
        return rows

    def cycle(self, number: int, load: str) -> None:
        group_id = "hot" if load == "hot" else f"g{number % 1000}"
        self.timed("publish", "select @.publish(%s, '1')", group_id)
        ((leased, token),) = self.timed("claim", "select group_id, token from @.claim('w', 60)")
        self.timed("ack", "select @.ack(%s, %s)", leased, token)
        if load == "drained" and number % 10 == 0:
            self.timed("empty", "select group_id from @.claim('w', 60)")


def run(url: str, load: str, kind: str, cycles: int) -> None:
    urls = [database(url, name) for name in ("horizon_free", "horizon_held")]
    free, held = map(Side, urls)
    for side in (free, held):
        if load == "backlog":
            side.timed("fill", "select @.publish('g' || n, '1') from generate_series(0, 999) as n")
        if load == "hot":
            side.timed("fill", "select @.publish('hot', '1')")
    with holding(urls[1], kind):
        for number in range(cycles):
            for side in (free, held) if number % 2 else (held, free):
                side.cycle(number, load)
    for name in held.times.keys() - {"fill"}:
        last = max(1, len(held.times[name]) // 10)
        without, behind = (statistics.median(side.times[name][-last:]) * 1e6 for side in (free, held))
        print(
            f"{load:8} {kind:9} {name:8} free {without:6.0f}  behind {behind:6.0f}  ratio {behind / without:5.2f}",
            flush=True,
        )
    for side in (free, held):
        side.connection.close()


def main() -> None:
    """Run each load with each kind of open transaction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20_000)
    parser.add_argument("--loads", default="drained,backlog,hot")
    parser.add_argument("--kinds", default="snapshot,select,writing")
    options = parser.parse_args()
    url = os.environ["FAIRLANE_TEST_POSTGRES_URL"]
    for load in options.loads.split(","):
        for kind in options.kinds.split(","):
            run(url, load, kind, options.cycles)


if __name__ == "__main__":
    main()
