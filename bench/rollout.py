"""Measure how long claims wait while a large queue on Postgres is upgraded and downgraded beside its clients.

    make bench-rollout BENCH_ARGS="--messages 1000000"

The clients are processes of the previous release, so this needs a clone with its history. Beside them an application
publishes in transactions that stay open for a while, and so keep locks on the tables. It prints the longest claims in
milliseconds: before the migrations, and of those that overlap an upgrade or a downgrade. With `--limit 200` it fails if
a claim that overlaps a migration took longer than 200 ms.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from tests.rollout.clients import Clients, errors, work
from tests.rollout.release import REVISION, Release, unpack
from tests.torture.history import Call, read

from fairlane import migrate

QUEUE = "bench_rollout"
OPEN_SECONDS = 0.3
GAP_SECONDS = 0.05
FILL = """
insert into @.messages (group_id, seq, event, published_at)
    select 'bulk-' || n % {groups}, n, '{{"n": 1}}', clock_timestamp() from generate_series(1, {messages}) as n;
insert into @.group_ids (group_id) select 'bulk-' || n from generate_series(0, {groups} - 1) as n;
insert into @.groups (group_id, priority, ready_at)
    select 'bulk-' || n, 0, clock_timestamp() - interval '1 hour' from generate_series(0, {groups} - 1) as n;
select setval('@.message_seq', {messages});
"""


@contextmanager
def database(url: str) -> Iterator[str]:
    """Make a database, and remove it afterwards."""
    name = sql.Identifier(QUEUE)
    drop = sql.SQL("drop database if exists {} with (force)").format(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(drop)
        admin.execute(sql.SQL("create database {}").format(name))
        base, _, query = url.partition("?")
        yield f"{base.rpartition('/')[0]}/{QUEUE}" + (f"?{query}" if query else "")
        admin.execute(drop)


def fill(url: str, messages: int, groups: int) -> None:
    """Write the rows that publishing one by one would leave."""
    with psycopg.connect(url, autocommit=True) as connection:
        text = FILL.replace("@", QUEUE).format(messages=messages, groups=groups)
        connection.execute(text.encode())
        connection.execute("vacuum analyze")


@contextmanager
def application(url: str) -> Iterator[None]:
    """Publish in transactions that stay open for a while, one after the other."""
    ended = threading.Event()

    def publish() -> None:
        with psycopg.connect(url) as connection:
            while not ended.wait(GAP_SECONDS):
                with connection.transaction():
                    connection.execute(f"select {QUEUE}.publish('application', '1')".encode())
                    ended.wait(OPEN_SECONDS)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def longest(calls: list[Call], windows: list[tuple[float, float]]) -> tuple[float, int]:
    """Return the longest claim in milliseconds of those that overlap a window, and their number."""
    claims = [call for call in calls if call.operation == "claim" and call.ok]
    times = [
        (call.end - call.start) * 1000
        for call in claims
        if any(call.start < end and call.end > start for start, end in windows)
    ]
    return max(times, default=0.0), len(times)


def run(url: str, previous: Release, folder: Path, options: argparse.Namespace) -> float:
    """Migrate up and down for some rounds, and print the figures. Return the longest claim beside a migration."""
    previous.migrate(url, QUEUE)
    fill(url, options.messages, options.groups)
    clients = Clients("old", previous, url, QUEUE, folder)
    windows: dict[str, list[tuple[float, float]]] = {"before": [], "upgrade": [], "downgrade": []}
    try:
        with application(url):
            work(1.0, clients)
            began = time.monotonic()
            work(options.seconds, clients)
            windows["before"].append((began, time.monotonic()))
            for _ in range(options.rounds):
                for name in ("upgrade", "downgrade"):
                    began = time.monotonic()
                    if name == "upgrade":
                        migrate.upgrade(url, queue=QUEUE)
                    else:
                        migrate.downgrade(url, queue=QUEUE, revision=REVISION)
                    windows[name].append((began, time.monotonic()))
                    work(1.0, clients)
        wrong = clients.end()
    finally:
        clients.kill()
    calls = read(folder)
    for name, found in windows.items():
        most, count = longest(calls, found)
        lasted = ", ".join(f"{end - start:.2f} s" for start, end in found)
        print(f"{name:10} longest claim {most:7.1f} ms of {count:6,} claims   ({lasted})", flush=True)
    print(f"errors: {errors(calls) or 'none'} {wrong or ''}")
    return longest(calls, windows["upgrade"] + windows["downgrade"])[0]


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="before the first migration")
    parser.add_argument("--limit", type=float, help="milliseconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as name:
        folder = Path(name)
        previous = unpack(folder / "previous")
        (folder / "journals").mkdir()
        with database(os.environ["FAIRLANE_TEST_POSTGRES_URL"]) as url:
            most = run(url, previous, folder / "journals", options)
    if options.limit is not None and most > options.limit:
        raise SystemExit(f"a claim took {most:.1f} ms, which is more than {options.limit:.0f} ms")


if __name__ == "__main__":
    main()
