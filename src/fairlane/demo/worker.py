"""A worker of the demo: claim, handle, ack, until told to stop.

As a process (`python -m fairlane.demo.worker`) it reads its job and orders from stdin and reports to stdout, in JSON
lines. When stdin ends, whoever started it is gone, and so it goes as well.
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
from typing import Any, Protocol

from fairlane.connect import connect
from fairlane.demo.application import Application
from fairlane.errors import LeaseLost
from fairlane.model import Lease
from fairlane.transport import Transport

IDLE = (0.01, 0.2)
"""Seconds between two claims when there is nothing: the first and the longest pause."""

ORPHANED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker has to know.

    `doomed_after` makes it the one to be killed: after so many events, at its next message of one of `doomed_at`.
    """

    url: str
    queue: str
    name: str
    visibility: float
    database: str
    doomed_after: int | None = None
    doomed_at: tuple[str, ...] = ()


class Channel(Protocol):
    """How a worker talks to the process that started it."""

    started: threading.Event
    stopped: threading.Event

    def send(self, message: dict[str, Any]) -> None:
        """Report something."""

    def die(self) -> None:
        """End at once, without any cleaning up."""


class Abandoned(Exception):
    """Ends a worker thread in the middle of its work, as a kill would end a process."""


class Worker:
    """The loop of a worker."""

    def __init__(self, job: Job, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._handled = 0

    def run(self) -> None:
        """Work until told to stop."""
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
        line, _ = application.handle(lease, self._job.name, lambda: self._perhaps_die(lease))
        try:
            queue.ack(lease)
        except LeaseLost:
            # another worker has the message now; the application will recognise it as handled
            application.mark_late(line)
        self._handled += 1

    def _perhaps_die(self, lease: Lease) -> None:
        job = self._job
        if job.doomed_after is None or self._handled < job.doomed_after:
            return
        if job.doomed_at and lease.group_id not in job.doomed_at:
            return
        until = (
            time.time() + self._job.visibility - IDLE[1]
            # by this machine's clock; handling took less time than the lease
        )
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

    def send(self, message: dict[str, Any]) -> None:
        self._output(json.dumps(message) + "\n")

    def die(self) -> None:
        time.sleep(60)  # until SIGKILL arrives
        raise RuntimeError("nobody has killed this worker")


def main() -> None:
    """Run one worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started the workers
    fields = json.loads(sys.stdin.readline())
    job = Job(**fields | {"doomed_at": tuple(fields["doomed_at"])})

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
