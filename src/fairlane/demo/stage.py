"""The course of the demo, from an empty database to the proofs."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from fairlane import migrate
from fairlane.backends import manifest_of
from fairlane.connect import connect
from fairlane.contract import MAX_LIMIT
from fairlane.demo.application import Application
from fairlane.demo.crew import Crew
from fairlane.demo.events import Event, by_package, published, read_log
from fairlane.demo.proofs import all_proofs
from fairlane.demo.report import Casualty, Plan, Report, Watcher
from fairlane.demo.worker import Job, Message
from fairlane.errors import AuthenticationFailed, ConfigurationError, FairlaneError
from fairlane.model import GroupStatus, QueueStatus
from fairlane.transport import Transport
from fairlane.urls import host_of, scheme_of

TICK = 0.1
SECONDS_TO_DRAIN = 10.0
SECONDS_TO_COUNT = 90.0
"""For backends with approximate figures: those of SQS are right one minute after the last change."""
KILL_AFTER_SHARE = 0.05
"""The part of the events after which a worker is killed. Small, so that its lease expires while the others work."""
MANY_EVENTS = 2000
"""From this number of events on, all workers start together."""
ENOUGH_MESSAGES = 4
"""The worker is killed at a package with this many events at least, so that some wait behind the held message."""


def run_demo(plan: Plan, watcher: Watcher) -> Report:
    """Run the demo and return its report.

    Raises:
        FairlaneError: the demo could not be finished. Its processes were ended, and its queue and files removed.
    """
    began = time.monotonic()
    log = read_log(plan.events)
    _check(plan, log)
    with _folder(plan) as folder, _queue(plan, folder, watcher) as (url, name):
        manifest = manifest_of(scheme_of(url))
        kind = "threads" if _in_process(url) else "processes"
        report = Report(manifest.name, name, kind, plan.workers, len(log), len(by_package(log)))
        watcher.begins(report, host_of(url))
        with connect(url, name) as queue, Application.create(folder / "application.db") as application:
            _Run(plan, log, queue, application, report, watcher).run(url, folder)
        report.total_seconds = time.monotonic() - began
    return report


def _in_process(url: str) -> bool:
    """Return whether only this process can reach the queue."""
    return manifest_of(scheme_of(url)).capabilities.reach == "process"


def _check(plan: Plan, log: Sequence[Event]) -> None:
    if plan.workers < 2:
        raise ValueError(f"workers must be at least 2, since one of them is killed: {plan.workers}")
    if len(log) < 20 * plan.workers:
        raise ValueError(f"events must be at least {20 * plan.workers} for {plan.workers} workers: {len(log)}")


@contextmanager
def _folder(plan: Plan) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fairlane-demo-"))
    try:
        yield folder
    finally:
        if not plan.keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _queue(plan: Plan, folder: Path, watcher: Watcher) -> Iterator[tuple[str, str]]:
    """Make a new queue, and remove it in the end."""
    # the queue need not survive a power failure, since it is removed in the end: this saves three syncs per message
    url = plan.url or f"sqlite:///{folder / 'queue.db'}?synchronous=normal"
    name = plan.queue or f"demo_{secrets.token_hex(4)}"
    in_process = _in_process(url)
    if not in_process and migrate.status(url, queue=name).found is not None:
        raise ConfigurationError(f"the queue {name} exists, and the demo removes its queue: name a new queue")
    removes = plan.url is not None and not in_process and not plan.keep
    try:
        try:
            migrate.upgrade(url, queue=name)
        except AuthenticationFailed:
            removes = False  # nothing was made
            raise
        yield url, name
    except BaseException:
        if removes:
            with suppress(Exception):  # report the first error, not one of the removal
                _remove(url, name, watcher)
        raise
    if removes:
        _remove(url, name, watcher)


def _remove(url: str, name: str, watcher: Watcher) -> None:
    try:
        migrate.downgrade(url, queue=name, revision="base")
    except BaseException:  # a second Ctrl-C as well
        watcher.leaves(name)
        raise


@dataclass(slots=True)
class _Run:
    """The state of a running demo."""

    plan: Plan
    log: Sequence[Event]
    queue: Transport[Any]
    application: Application
    report: Report
    watcher: Watcher

    def run(self, url: str, folder: Path) -> None:
        self._publish()
        self._look("before")
        self.watcher.progress("handling", 0, len(self.log))
        with Crew(self._jobs(url, folder), threads=self.report.kind == "threads") as crew:
            self._wait_for(crew, "ready", "start")
            started = time.time()
            self._start(crew)
            self._handle(crew)
            left = self._drain()
            crew.order("stop")
            self._wait_for(crew, "ended", "end")
        self._look("after")
        self._prove(started, left)

    def _publish(self) -> None:
        began = time.monotonic()
        for number, event in enumerate(self.log, 1):
            self.queue.publish(event.package, published(event))
            if number % 50 == 0 or number == len(self.log):
                self.watcher.progress("publishing", number, len(self.log))
        self.report.publish_seconds = time.monotonic() - began

    def _jobs(self, url: str, folder: Path) -> list[Job]:
        names = [f"worker-{number}" for number in range(1, self.plan.workers + 1)]
        kill_after = int(len(self.log) * KILL_AFTER_SHARE / len(names))
        busy = tuple(package for package, events in by_package(self.log).items() if len(events) >= ENOUGH_MESSAGES)
        return [
            Job(
                url,
                self.report.queue,
                name,
                self.plan.visibility,
                str(folder / "application.db"),
                kill_after if name == names[0] else None,
                busy if name == names[0] else (),
            )
            for name in names
        ]

    def _next(self, crew: Crew, seconds: float) -> tuple[str, Message] | None:
        """Return the next message of a worker, or None if none arrives in time.

        Raises:
            FairlaneError: a worker failed.
        """
        try:
            name, message = crew.inbox.get(timeout=seconds)
        except Empty:
            return None
        if "error" in message:
            raise FairlaneError(f"{name} failed: {message['error']}")
        if message.get("ended") and (self.report.casualty is None or self.report.casualty.worker != name):
            raise FairlaneError(f"{name} ended too early: {message['ended']}")
        return name, message

    def _wait_for(self, crew: Crew, word: str, doing: str) -> None:
        """Wait until each worker has said a word, except one that was killed."""
        waiting = set(crew.members) - ({self.report.casualty.worker} if self.report.casualty else set())
        deadline = time.monotonic() + self.plan.patience
        while waiting:
            received = self._next(crew, TICK)
            if received and word in received[1]:
                waiting.discard(received[0])
            if time.monotonic() > deadline:
                raise FairlaneError(f"{', '.join(sorted(waiting))} did not {doing} in {self.plan.patience:g} s")

    def _start(self, crew: Crew) -> None:
        """Start the workers. With few events start only the worker to kill: the others could finish before the kill."""
        victim, *others = crew.members.values()
        for member in (victim, *others) if len(self.log) >= MANY_EVENTS else (victim,):
            member.order("start")

    def _handle(self, crew: Crew) -> None:
        """Wait until all events are handled. Kill a worker when it holds the chosen message."""
        done, since = 0, time.monotonic()
        patience = self.plan.patience + 2 * self.plan.visibility
        while done < len(self.log):
            received = self._next(crew, TICK)
            if received and "holding" in received[1]:
                crew.order("start")  # for the other workers; a worker that already runs ignores it
                self._kill(crew, *received)
            count = self.application.count_applied()
            if count > done:
                done, since = count, time.monotonic()
                self.watcher.progress("handling", done, len(self.log))
            if time.monotonic() - since > patience:
                raise FairlaneError(f"nothing was handled for {patience:g} s; {done:,} of {len(self.log):,} are done")

    def _kill(self, crew: Crew, name: str, message: Message) -> None:
        end = crew.members[name].kill()
        killed_at = time.time()
        package = message["holding"]
        groups = self._look("middle", announce=False)
        group = next((row for row in groups if row.group_id == package), None)
        shown = self.queue.capabilities.inspect_messages
        self.report.casualty = casualty = Casualty(
            worker=name,
            package=package,
            seq=message["seq"],
            waiting=group.depth - 1 if group else 0 if shown else None,
            handled=message["handled"],
            time=killed_at,
            held=self._held(name, group) if shown else killed_at < message["until"],
            end=end,
            shown=shown,
        )
        self.watcher.killed(casualty)
        self.watcher.looks("middle", *self.report.views["middle"])

    @staticmethod
    def _held(name: str, group: GroupStatus | None) -> bool:
        """Return whether the queue shows that the worker holds a message of the group."""
        return group is not None and group.state == "in_flight" and group.worker_id == name

    def _look(self, moment: str, *, announce: bool = True) -> Sequence[GroupStatus]:
        status = self.queue.inspect.queue()
        groups: Sequence[GroupStatus] = ()
        if self.queue.capabilities.inspect_messages:
            groups = self.queue.inspect.groups(limit=MAX_LIMIT)
        self.report.views[moment] = (status, groups)
        if announce:
            self.watcher.looks(moment, status, groups)
        return groups

    def _drain(self) -> QueueStatus:
        """Wait until the last messages are acked; return the figures of the queue then."""
        exact = self.queue.capabilities.exact_counts
        deadline = time.monotonic() + (SECONDS_TO_DRAIN if exact else SECONDS_TO_COUNT)
        while True:
            left = self.queue.inspect.queue()
            # on some backends an ack has several steps and removes the group after the message
            if not (left.messages or left.groups) or time.monotonic() > deadline:
                return left
            time.sleep(TICK / 5)

    def _prove(self, started: float, left: QueueStatus) -> None:
        journal, casualty, report = self.application.journal(), self.report.casualty, self.report
        report.proofs = all_proofs(self.log, self.application.packages(), journal, casualty, left)
        delayed = casualty.package if casualty else None
        free = [entry.time for entry in journal if entry.event.package != delayed]
        report.handle_seconds = max(free) - started
        report.handled_until_then = sum(entry.time <= max(free) for entry in journal)
        if casualty:
            times = (e.time for e in journal if e.event.package == delayed and e.time > casualty.time)
            report.recovery_seconds = next((when - casualty.time for when in times), None)
        for entry in journal:
            report.handled[entry.worker] = report.handled.get(entry.worker, 0) + 1
