"""One replicated log, one leader at a time, and the faults of nodes.

Each node has its own SQLite database. A write is applied by the leader at once and appended to the log; a follower
applies the log when its database is read (with level=none) or when it becomes leader. So a statement whose result
depends on the node or the time (CURRENT_TIMESTAMP in a trigger, RANDOM() with ?norwrandom) makes databases differ, as
with rqlite's statement-based replication.

Not Raft itself: no votes, no uncommitted entries. A lost leader is noticed after `heartbeat` seconds and replaced
`election` seconds later (rqlite's defaults: 1 s each).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .bodies import Result, Statement
from .database import Database, Kind
from .faults import LEADERSHIP_LOST

LOG_STATEMENTS = 1_000  # if the log gets longer, the other nodes apply it and it is cut; all requests wait for that
LOG_CHARACTERS = 20_000_000
NEVER = float("inf")


@dataclass(frozen=True)
class Entry:
    kind: Kind
    statements: tuple[Statement, ...]
    transaction: bool = False

    @property
    def size(self) -> int:
        values = (value for each in self.statements for _, value in each.parameters)
        return sum(len(value) for value in values if isinstance(value, str | bytes))


@dataclass(eq=False)
class Node:
    index: int
    database: Database
    api_address: str = ""
    alive: bool = True
    frozen_since: float | None = None
    applied: int = 0

    @property
    def id(self) -> str:
        return f"node-{self.index + 1}"

    @property
    def raft_address(self) -> str:
        """Return the address that /nodes and X-RQLITE-SERVED-BY show; nothing listens there."""
        return f"127.0.0.1:{4002 + 2 * self.index}"


class NotLeader(Exception):
    """This node is not the leader; holds the node that it takes for the leader, if any."""

    def __init__(self, leader: Node | None) -> None:
        super().__init__("not leader")
        self.leader = leader


class RaftError(Exception):
    """The log did not accept the entry; the text goes to the top of the answer."""


class Raft:
    def __init__(self, databases: Sequence[Database], *, heartbeat: float, election: float) -> None:
        self.nodes = [Node(index, database) for index, database in enumerate(databases)]
        self.heartbeat = heartbeat
        self.election = election
        self.term = 1
        self._leader: int | None = 0
        self._last_leader = 0
        self._forget_at = NEVER  # the time when a dead or isolated leader is noticed
        self._elect_at = NEVER
        self._log: list[Entry] = []
        self._log_size = 0
        self._log_statements = 0
        self._log_start = 0
        self._lock = threading.RLock()

    def leader(self) -> Node | None:
        """Return the node that the running nodes take for the leader: for a moment this may be a dead one."""
        with self._lock:
            now = time.monotonic()
            if self._leader is not None and now >= self._forget_at:
                self._leader = None
            if self._leader is None and now >= self._elect_at and self._quorum():
                self._lead(self._next())
            return None if self._leader is None else self.nodes[self._leader]

    def require_leader(self, node: Node) -> None:
        """Raises: NotLeader"""
        leader = self.leader()
        if leader is not node:
            raise NotLeader(leader)

    def write(self, node: Node, entry: Entry, times: int = 1) -> list[Result]:
        """Append to the log and apply. Return the results of the last application.

        Raises:
            NotLeader: nothing was done.
            RaftError: this leader has no majority; nothing was done.
        """
        with self._lock:
            self.require_leader(node)
            if not self._quorum():
                raise RaftError(LEADERSHIP_LOST)
            results: list[Result] = []
            for _ in range(times):
                self._append(entry)
                node.applied += 1
                results = node.database.run(entry.kind, entry.statements, entry.transaction)
            if self._log_statements > LOG_STATEMENTS or self._log_size > LOG_CHARACTERS:
                self._cut_log()
            return results

    def read(self, node: Node, entry: Entry) -> list[Result]:
        """Read a node's own database. A frozen follower shows its old state."""
        with self._lock:
            self._catch_up(node)
            return node.database.run(entry.kind, entry.statements, entry.transaction)

    def read_only(self, node: Node, statements: Sequence[Statement]) -> bool:
        """Return whether every statement is a read. A statement that cannot be prepared is not."""
        with self._lock:
            self._catch_up(node)
            return all(node.database.is_read(each.sql) for each in statements if each.sql)

    def stop(self, node: Node) -> None:
        with self._lock:
            node.alive = False
            if self._leader == node.index or not self._quorum():
                self._forget_at = min(self._forget_at, time.monotonic() + self.heartbeat)
                self._elect_at = self._forget_at + self.election

    def start(self, node: Node) -> None:
        with self._lock:
            node.alive = True
            leader = self.leader()
            if leader is not None and leader.alive and self._quorum():
                self._forget_at = NEVER  # back before the others noticed
            elif leader is None and self._elect_at != NEVER:
                self._elect_at = max(self._elect_at, time.monotonic() + self.election)

    def freeze(self, node: Node) -> None:
        """Cut the follower off: its database stays as it is, and its reads become stale."""
        with self._lock:
            if self.leader() is node:
                raise ValueError("the leader cannot be frozen")
            self._catch_up(node)
            node.frozen_since = time.monotonic()

    def thaw(self, node: Node) -> None:
        with self._lock:
            node.frozen_since = None

    def change_leader(self, to: int | None = None) -> Node:
        """Change the leader at once, by default to the next running node."""
        with self._lock:
            return self._lead(self._next() if to is None else self.nodes[to])

    def lose_leader(self, seconds: float | None = None) -> None:
        """Have no leader for these seconds (None: until `change_leader`). Then the next running node becomes the
        leader."""
        with self._lock:
            self._leader = None
            self._elect_at = NEVER if seconds is None else time.monotonic() + seconds

    def close(self) -> None:
        with self._lock:
            for node in self.nodes:
                node.frozen_since = None
                self._catch_up(node)
            for node in self.nodes:
                node.database.close()

    def _quorum(self) -> bool:
        return sum(node.alive for node in self.nodes) * 2 > len(self.nodes)

    def _next(self) -> Node:
        """Return the next running node after the last leader; the last leader itself comes last."""
        order = [self.nodes[(self._last_leader + 1 + step) % len(self.nodes)] for step in range(len(self.nodes))]
        return next(node for node in order if node.alive)

    def _lead(self, node: Node) -> Node:
        if not node.alive:
            raise ValueError(f"{node.id} is down")
        node.frozen_since = None
        self._catch_up(node)
        self._leader = self._last_leader = node.index
        self._forget_at = self._elect_at = NEVER
        self.term += 1
        return node

    def _append(self, entry: Entry) -> None:
        if len(self.nodes) > 1:
            self._log.append(entry)
            self._log_size += entry.size
            self._log_statements += len(entry.statements)
        else:
            self._log_start += 1

    def _catch_up(self, node: Node) -> None:
        if node.frozen_since is not None:
            return
        if node.applied < self._log_start:  # its entries are cut: a snapshot instead
            newest = max(self.nodes, key=lambda each: each.applied)
            newest.database.copy_to(node.database)
            node.applied = newest.applied
        for entry in self._log[node.applied - self._log_start :]:
            node.applied += 1
            node.database.run(entry.kind, entry.statements, entry.transaction)

    def _cut_log(self) -> None:
        for node in self.nodes:
            if node.alive:
                self._catch_up(node)
        self._log_start += len(self._log)
        self._log.clear()
        self._log_size = self._log_statements = 0
