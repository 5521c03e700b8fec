"""Switches that make the next requests go wrong.

A switch waits for requests that match it (`Where`), acts on `n` of them and is then used up. Several switches may be
set; the first one that matches acts. Lasting faults (a node that is down, no leader) are methods of `Cluster`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["drop_answer", "apply_twice", "refuse", "slow", "slow_answer", "raft_error", "reply"]

ON_WRITES: tuple[Action, ...] = ("apply_twice", "raft_error")
WRITING_ENDPOINTS = ("execute", "request")

LEADERSHIP_LOST = "leadership lost while committing log"  # hashicorp/raft, ErrLeadershipLost


@dataclass(frozen=True)
class Where:
    """Which requests are meant."""

    endpoint: str | None = None  # "execute", "query", "request", "readyz", …
    statement: str | None = None  # a regular expression, found in any of its statements, in any case
    node: int | None = None  # the node that the client talks to
    skip: int = 0  # this many matching requests pass first

    def fits(self, endpoint: str, sql: str, node: int) -> bool:
        return (
            self.endpoint in (None, endpoint)
            and self.node in (None, node)
            and (self.statement is None or re.search(self.statement, sql, re.IGNORECASE | re.DOTALL) is not None)
        )


@dataclass(eq=False)
class Switch:
    action: Action
    left: int
    where: Where
    skip: int = 0
    seconds: float = 0.0
    applied: bool = False
    status: int = 0
    text: str = ""


@dataclass
class Faults:
    """All switches that are set. Every method takes the fields of `Where` as keywords."""

    _switches: list[Switch] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drop_answers(self, n: int = 1, **where: object) -> None:
        """Do the work, then close the connection without an answer."""
        self._set("drop_answer", n, where)

    def apply_twice(self, n: int = 1, **where: object) -> None:
        """Write twice and answer with the second result: a follower's retry after a lost answer of the leader.

        cluster/client.go, `retry`, sends a forwarded request again after any error: rqlite issue 1628.
        """
        self._set("apply_twice", n, where)

    def refuse(self, n: int = 1, **where: object) -> None:
        """Close the connection and do nothing."""
        self._set("refuse", n, where)

    def slow(self, seconds: float, n: int = 1, *, after: bool = False, **where: object) -> None:
        """Wait before the work, or `after` it and before the answer."""
        self._set("slow_answer" if after else "slow", n, where, seconds=seconds)

    def raft_error(self, n: int = 1, *, applied: bool = False, text: str = LEADERSHIP_LOST, **where: object) -> None:
        """Answer a write with HTTP 200 and an error at the top: the client cannot tell whether it was `applied`."""
        self._set("raft_error", n, where, applied=applied, text=text)

    def reply(self, status: int, text: str = "", n: int = 1, **where: object) -> None:
        """Answer with this status and do nothing, as a proxy in between may do."""
        self._set("reply", n, where, status=status, text=text)

    def clear(self) -> None:
        with self._lock:
            self._switches.clear()

    @property
    def pending(self) -> int:
        """Return how many requests are still to fail: 0 proves that each fault happened."""
        with self._lock:
            return sum(switch.left for switch in self._switches)

    def take(self, endpoint: str, sql: str, node: int) -> Switch | None:
        """Return the switch that acts on this request, and count the use."""
        with self._lock:
            acting: Switch | None = None
            for switch in self._switches:
                if switch.action in ON_WRITES and endpoint not in WRITING_ENDPOINTS:
                    continue
                if not switch.where.fits(endpoint, sql, node):
                    continue
                if switch.skip:
                    switch.skip -= 1
                elif acting is None:
                    acting = switch
            if acting:
                acting.left -= 1
                if not acting.left:
                    self._switches.remove(acting)
            return acting

    def _set(
        self,
        action: Action,
        n: int,
        where: dict[str, object],
        *,
        seconds: float = 0.0,
        applied: bool = False,
        status: int = 0,
        text: str = "",
    ) -> None:
        wanted = Where(**where)  # type: ignore[arg-type]
        switch = Switch(action, n, wanted, wanted.skip, seconds, applied, status, text)
        with self._lock:
            self._switches.append(switch)
