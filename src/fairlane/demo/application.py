"""The application of the demo: it keeps the state of each package in its own database.

A queue delivers a message at least once. The application applies it exactly once: in one transaction it changes its
state and stores the number of the message. A message whose number is already stored changes nothing.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from fairlane.demo.events import Event
from fairlane.model import Lease

LOCK_TIMEOUT = 30.0
"""Seconds to wait for the other workers' transactions."""

Outcome = Literal["applied", "repeated", "overtaken"]

_SCHEMA = """
pragma journal_mode = wal;
create table packages (
    package text primary key,
    status text not null,
    version text not null,
    at text not null,
    handled integer not null,  -- events so far
    last_seq text not null     -- seq of the last event; text, since some backends have more than 64 bits
);
create table deliveries (
    id integer primary key,
    package text not null,
    seq text not null,
    attempts integer not null,
    worker text not null,
    time real not null,
    at text not null,
    status text not null,
    version text not null,
    outcome text not null,
    late integer not null default 0  -- the lease was lost before the ack
);
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry of the application's journal."""

    event: Event
    seq: int
    attempts: int
    worker: str
    time: float
    outcome: Outcome
    late: bool


def _details(event: Event) -> tuple[str, str, str]:
    return event.at, event.status, event.version


class Application:
    """Handles the messages. Each worker has its own object, with its own connection."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        self._connection.execute("pragma synchronous = normal")

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the database, and open it."""
        with sqlite3.connect(path) as connection:
            connection.executescript(_SCHEMA)
        connection.close()
        return cls(path)

    def handle(
        self, lease: Lease, worker: str, before_commit: Callable[[], None] = lambda: None
    ) -> tuple[int, Outcome]:
        """Apply an event to its package unless it was applied before; return the journal entry's id and the outcome."""
        event = Event(**lease.event)
        self._begin()
        try:
            outcome = self._outcome(event.package, lease.seq)
            if outcome == "applied":
                self._apply(event, lease.seq)
            cursor = self._connection.execute(
                "insert into deliveries (package, seq, attempts, worker, time, at, status, version, outcome)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (event.package, str(lease.seq), lease.attempts, worker, time.time(), *_details(event), outcome),
            )
            before_commit()
            self._connection.execute("commit")
        except BaseException:
            self._connection.execute("rollback")
            raise
        return int(cursor.lastrowid or 0), outcome

    def _outcome(self, package: str, seq: int) -> Outcome:
        row = self._connection.execute("select last_seq from packages where package = ?", (package,)).fetchone()
        last = int(row[0]) if row else -1
        return "applied" if seq > last else "repeated" if seq == last else "overtaken"

    def _apply(self, event: Event, seq: int) -> None:
        self._connection.execute(
            "insert into packages (package, status, version, at, handled, last_seq) values (?, ?, ?, ?, 1, ?)"
            " on conflict (package) do update set status = excluded.status, version = excluded.version,"
            " at = excluded.at, handled = handled + 1, last_seq = excluded.last_seq",
            (event.package, event.status, event.version, event.at, str(seq)),
        )

    def mark_late(self, delivery_id: int) -> None:
        """Record that the lease of this delivery was lost before the ack."""
        self._begin()
        self._connection.execute("update deliveries set late = 1 where id = ?", (delivery_id,))
        self._connection.execute("commit")

    def _begin(self) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("begin immediate")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
            # short random pauses give all workers the same chance; SQLite's growing pauses would starve some
            time.sleep(random.uniform(0.0002, 0.001))

    def count_applied(self) -> int:
        """Return the number of events that were handled so far."""
        return int(self._connection.execute("select coalesce(sum(handled), 0) from packages").fetchone()[0])

    def packages(self) -> dict[str, Event]:
        """Return the state of every package."""
        rows = self._connection.execute("select at, status, package, version from packages").fetchall()
        return {row[2]: Event(*row) for row in rows}

    def journal(self) -> list[Delivery]:
        """Return all deliveries in the order in which they were handled."""
        rows = self._connection.execute(
            "select at, status, package, version, seq, attempts, worker, time, outcome, late"
            " from deliveries order by id"
        ).fetchall()
        return [Delivery(Event(*row[:4]), int(row[4]), row[5], row[6], row[7], row[8], bool(row[9])) for row in rows]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
