"""What the demo is told, what it shows while it runs, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairlane.model import GroupStatus, QueueStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        url: the backend; None for an SQLite file in a temporary folder.
        queue: the queue to make; None for a generated name. It must not exist.
        workers: processes, or threads on `memory://`; one of them is killed, so two at least.
        visibility: seconds of each lease, and so about the time until the killed worker's message comes back.
        events: handle only so many lines of the log; None for all.
        keep: leave the queue, and what was made in the temporary folder.
        patience: seconds without any progress after which the demo gives up.
    """

    url: str | None = None
    queue: str | None = None
    workers: int = 4
    visibility: float = 2.5
    events: int | None = None
    keep: bool = False
    patience: float = 30.0


@dataclass(frozen=True, slots=True)
class Casualty:
    """The worker that was killed, and the message that it held."""

    worker: str
    package: str
    seq: int
    waiting: int | None
    """Messages of the package behind the one it held; None where a queue cannot show that."""
    handled: int
    """Events that it had handled before."""
    time: float
    held: bool
    """Whether the queue showed, after its end, that it held the message; or, where a queue cannot show that, whether it
    ended before its lease did."""
    end: str
    """How it ended, in words."""
    shown: bool = True
    """Whether a queue of this kind can show what is held."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One claim about the run: whether it holds, and the figures."""

    name: str
    holds: bool
    detail: str


@dataclass(slots=True)
class Report:
    """What happened. Seconds are of this machine's clock."""

    backend: str
    queue: str
    kind: str
    """`processes` or `threads`"""
    workers: int
    events: int
    packages: int
    publish_seconds: float = 0.0
    handle_seconds: float = 0.0
    """From the start of the workers to the last event that did not have to wait for the killed worker's lease."""
    handled_until_then: int = 0
    recovery_seconds: float | None = None
    total_seconds: float = 0.0
    casualty: Casualty | None = None
    handled: dict[str, int] = field(default_factory=dict)
    """Events handled by each worker."""
    views: dict[str, tuple[QueueStatus, Sequence[GroupStatus]]] = field(default_factory=dict)
    """What an operator sees: `before`, `middle` and `after`."""
    proofs: list[Proof] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every proof holds."""
        return bool(self.proofs) and all(proof.holds for proof in self.proofs)

    @property
    def publish_rate(self) -> float:
        """Messages published per second."""
        return self.events / self.publish_seconds if self.publish_seconds else 0.0

    @property
    def handle_rate(self) -> float:
        """Messages claimed, handled and acked per second, by all workers together."""
        return self.handled_until_then / self.handle_seconds if self.handle_seconds else 0.0


class Watcher(Protocol):
    """Sees what happens while it happens."""

    def begins(self, report: Report, where: str) -> None:
        """Everything is ready."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """So much of a stage (`publishing`, `handling`) is done."""

    def looks(self, moment: str, queue: QueueStatus, groups: Sequence[GroupStatus]) -> None:
        """What an operator sees at some moment: `before`, `middle`, `after`."""

    def killed(self, casualty: Casualty) -> None:
        """A worker was killed."""
