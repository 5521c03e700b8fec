"""A worker of the demo. It claims, handles and acks messages until it gets the order to stop.

As a process (`python -m fairlane.demo.worker`) it reads its job and orders from stdin and reports to stdout, in JSON
lines. When stdin ends, the process that started it has ended, so the worker ends too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from fairlane.connect import connect
from fairlane.demo.application import Application
from fairlane.errors import LeaseLost
from fairlane.model import Lease
from fairlane.transport import Transport

IDLE = (0.01, 0.2)
"""Seconds between two claims when nothing is deliverable: the first and the longest pause."""

ORPHANED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """The task of a worker.

    A worker with `kill_after` is to be killed: after this many events, at its next message of a group in `kill_at`.
    """

    url: str
    queue: str
    name: str
    visibility: float
    database: str
    kill_after: int | None = None
    kill_at: tuple[str, ...] = ()


Message: TypeAlias = dict[str, Any]
"""What a worker reports: each key is a word of its own."""


class Channel(Protocol):
    """The connection between a worker and the process that started it."""

    started: threading.Event
    stopped: threading.Event

    def send(self, message: Message) -> None:
        """Send a message to the process that started the worker."""

    def die(self) -> None:
        """End at once, without cleaning up."""


class Abandoned(Exception):
    """Ends a worker thread in the middle of its work, as SIGKILL ends a process."""


class Worker:
    """The loop of a worker."""

    def __init__(self, job: Job, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._handled = 0

    def run(self) -> None:
        """Work until the order to stop arrives."""
        with connect(self._job.url, self._job.queue) as queue, Application(Path(self._job.database)) as application:
            self._channel.send({"ready": True})
            self._channel.started.wait()
            idle = IDLE[0]
            while not self._channel.stopped.is_set():
                lease = queue.claim(self._job.name, self._job.visibility)
                if lease is None:
                    self._channel.stopped.wait(idle)
                    idle = min(2 * idle, IDLE[1])
                else:
                    self._work(queue, application, lease)
                    idle = IDLE[0]
        self._channel.send({"done": self._handled})

    def _work(self, queue: Transport[Any], application: Application, lease: Lease) -> None:
        delivery_id, _ = application.handle(lease, self._job.name, lambda: self._die_if_chosen(lease))
        try:
            queue.ack(lease)
        except LeaseLost:
            # another worker has the message now; the application will see that it was handled
            application.mark_late(delivery_id)
        self._handled += 1

    def _die_if_chosen(self, lease: Lease) -> None:
        job = self._job
        if job.kill_after is None or self._handled < job.kill_after:
            return
        if job.kill_at and lease.group_id not in job.kill_at:
            return
        # by this machine's clock, with a margin for the time since the claim
        until = time.time() + self._job.visibility - IDLE[1]
        self._channel.send({"holding": lease.group_id, "seq": lease.seq, "handled": self._handled, "until": until})
        self._channel.die()


class _Pipes:
    """The channel of a worker process."""

    def __init__(self, orders: Iterable[str], output: Callable[[str], object]) -> None:
        self.started = threading.Event()
        self.stopped = threading.Event()
        self._output = output
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()

    def _listen(self, orders: Iterable[str]) -> None:
        for order in orders:
            {"start": self.started, "stop": self.stopped}[order.strip()].set()
            self.started.set()
        os._exit(ORPHANED)

    def send(self, message: Message) -> None:
        self._output(json.dumps(message) + "\n")

    def die(self) -> None:
        time.sleep(60)  # until SIGKILL arrives
        raise RuntimeError("this worker was not killed within a minute")


def main() -> None:
    """Run one worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started the workers handles Ctrl-C
    fields = json.loads(sys.stdin.readline())
    job = Job(**fields | {"kill_at": tuple(fields["kill_at"])})

    def output(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    channel = _Pipes(sys.stdin, output)
    try:
        Worker(job, channel).run()
    except Exception as error:
        channel.send({"error": f"{type(error).__name__}: {error}"})


def encode(job: Job) -> str:
    """Return a job as the line that `main` reads first."""
    return json.dumps(asdict(job)) + "\n"


if __name__ == "__main__":
    main()
