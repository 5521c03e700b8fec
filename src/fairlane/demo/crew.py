"""The workers of the demo, as processes or threads. When the crew is closed, all workers have ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import fairlane
from fairlane.demo.worker import Abandoned, Job, Message, Worker, encode

SECONDS_TO_END = 10.0
Inbox = SimpleQueue[tuple[str, Message]]
"""The name of a worker and its message. A worker's last message has the key `ended`, with the reason or None."""


class Member(Protocol):
    """One worker."""

    name: str

    def order(self, word: str) -> None:
        """Send the worker the order `start` or `stop`."""

    def kill(self) -> str:
        """End the worker in the middle of its work, wait for its end, and return how it ended."""

    def end(self) -> None:
        """End the worker if it still runs."""


class ProcessMember:
    """A worker in its own process."""

    def __init__(self, job: Job, inbox: Inbox) -> None:
        self.name = job.name
        self._inbox = inbox
        package = str(Path(fairlane.__file__).resolve().parents[1])
        path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fairlane.demo.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
            encoding="utf-8",
            errors="backslashreplace",
        )
        self._errors: list[str] = []
        self._listeners = [
            threading.Thread(target=target, daemon=True) for target in (self._listen, self._listen_to_errors)
        ]
        for listener in self._listeners:
            listener.start()
        # not on the command line: every user of the machine can read that, and the URL may contain a password
        self._write(encode(job))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process has ended; the thread that reads its output reports that
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # an incomplete line of a worker that was killed
                self._inbox.put((self.name, json.loads(line)))
        code = self._process.wait()
        self._listeners[1].join(SECONDS_TO_END)
        reason = None if code == 0 else f"exit code {code} {' '.join(self._errors[-1:])}".strip()
        self._inbox.put((self.name, {"ended": reason}))

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.strip())

    def order(self, word: str) -> None:
        self._write(f"{word}\n")

    def kill(self) -> str:
        self._process.kill()
        code = self._process.wait(SECONDS_TO_END)
        return f"process {self._process.pid}, ended by signal {-code}" if code < 0 else f"exit code {code}"

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for listener in self._listeners:
            listener.join(SECONDS_TO_END)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]


class ThreadMember:
    """A worker in a thread, for a queue in this process. When it is killed, it ends without cleaning up."""

    def __init__(self, job: Job, inbox: Inbox) -> None:
        self.name = job.name
        self._inbox = inbox
        self.started = threading.Event()
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._thread.start()

    def _run(self, job: Job) -> None:
        reason = None
        try:
            Worker(job, self).run()
        except Abandoned:
            reason = "stopped in the middle of its work"
        except Exception as error:
            self.send({"error": f"{type(error).__name__}: {error}"})
        self.send({"ended": reason})

    def send(self, message: Message) -> None:
        self._inbox.put((self.name, message))

    def die(self) -> None:
        raise Abandoned()

    def order(self, word: str) -> None:
        {"start": self.started, "stop": self.stopped}[word].set()

    def kill(self) -> str:
        self._thread.join(SECONDS_TO_END)
        return "a thread, which ended and left its lease and its work unfinished"

    def end(self) -> None:
        self.stopped.set()
        self.started.set()
        self._thread.join(SECONDS_TO_END)


class Crew:
    """All workers. As a context manager it ends those that still run."""

    def __init__(self, jobs: Sequence[Job], *, threads: bool) -> None:
        self.inbox: Inbox = SimpleQueue()
        self.members: dict[str, Member] = {}
        made: type[ThreadMember] | type[ProcessMember] = ThreadMember if threads else ProcessMember
        try:
            for job in jobs:
                self.members[job.name] = made(job, self.inbox)
        except BaseException:
            self.end()
            raise

    def order(self, word: str) -> None:
        """Send all workers an order."""
        for member in self.members.values():
            member.order(word)

    def end(self) -> None:
        """End all workers that still run."""
        for member in self.members.values():
            member.end()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
