"""The input of the demo, its events while it runs, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fairlane.model import GroupStatus, QueueStatus


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of the demo.

    Attributes:
        url: the backend; None for an SQLite file in a temporary folder.
        queue: the queue to make; None for a generated name. It must not exist.
        workers: number of processes, or of threads on `memory://`. One of them is killed, so at least two.
        visibility: seconds of each lease. About this time passes until the killed worker's message is delivered again.
        events: number of lines of the log to handle; None for all.
        keep: do not remove the queue and the files in the temporary folder.
        patience: seconds without any progress after which the demo fails.
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
    """Number of the package's messages behind the held one; None if the backend does not show messages."""
    handled: int
    """Number of events that the worker had handled before."""
    time: float
    held: bool
    """Whether the queue showed, after the kill, that the worker held the message. If the backend shows no leases:
    whether the worker ended before its lease."""
    end: str
    """How it ended, in words."""
    shown: bool = True
    """Whether the backend shows leases."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One statement about the run: whether it holds, and its figures."""

    name: str
    holds: bool
    detail: str


@dataclass(slots=True)
class Report:
    """The result of the demo. Seconds are measured with this machine's clock."""

    backend: str
    queue: str
    kind: str
    """`processes` or `threads`"""
    workers: int
    events: int
    packages: int
    publish_seconds: float = 0.0
    handle_seconds: float = 0.0
    """From the start of the workers to the last event that did not wait for the killed worker's lease."""
    handled_until_then: int = 0
    recovery_seconds: float | None = None
    total_seconds: float = 0.0
    casualty: Casualty | None = None
    handled: dict[str, int] = field(default_factory=dict)
    """Number of events handled by each worker."""
    views: dict[str, tuple[QueueStatus, Sequence[GroupStatus]]] = field(default_factory=dict)
    """The state of the queue at the moments `before`, `middle` and `after`."""
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
    """Is called by the demo while it runs."""

    def begins(self, report: Report, where: str) -> None:
        """Called when the queue and the application are ready."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Called when `done` of `total` events of a stage (`publishing`, `handling`) are done."""

    def looks(self, moment: str, queue: QueueStatus, groups: Sequence[GroupStatus]) -> None:
        """Called with the state of the queue at a moment: `before`, `middle`, `after`."""

    def killed(self, casualty: Casualty) -> None:
        """Called when a worker was killed."""

    def leaves(self, queue: str) -> None:
        """Called when the queue, which was made for the demo, could not be removed."""
