"""The records of clients: one line of JSON before each call and one after it, in a file for each client."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fairlane import FairlaneError

NEVER = float("inf")


@dataclass(slots=True)
class Call:
    """One call of one client. Times are of the machine's monotonic clock, which all processes share.

    Attributes:
        end: when it returned; infinity when its client was killed in it.
        outcome: `ok`; `error`, one of Fairlane's; `raw`, any other; `cancelled`; `pending`, not known.
        result: what it returned, or the error in words.
    """

    who: str
    operation: str
    start: float
    end: float
    outcome: str
    arguments: dict[str, Any]
    result: Any

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


class Journal:
    """Writes the calls of one client. Each line is written at once, so that a killed client loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._number = 0

    def call(self, operation: str, **arguments: Any) -> Entry:
        """Write down that a call begins."""
        self._number += 1
        self.write({"n": self._number, "op": operation, "t": time.monotonic(), "args": arguments})
        return Entry(self, self._number)

    def write(self, record: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")


class Entry:
    """A running call: it ends with `returned`, or with an exception, which is written down and passed on."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self._number = number

    def returned(self, result: Any = None) -> None:
        self._end("ok", result)

    def lost(self) -> None:
        """End as a call that raised `LeaseLost`."""
        self._end("error", "LeaseLost: in a batch")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, FairlaneError):
            self._end("error", f"{type(error).__name__}: {error}")
        elif isinstance(error, Exception):
            self._end("raw", f"{type(error).__module__}.{type(error).__name__}: {error}")
        else:
            self._end("cancelled", type(error).__name__)

    def _end(self, outcome: str, result: Any) -> None:
        self._journal.write({"n": self._number, "t": time.monotonic(), "outcome": outcome, "result": result})


def read(folder: Path) -> list[Call]:
    """Return the calls of all clients in the order of their beginnings."""
    calls = [call for path in sorted(folder.glob("*.log")) for call in _read_one(path)]
    return sorted(calls, key=lambda call: call.start)


def _read_one(path: Path) -> Iterator[Call]:
    open_calls: dict[int, Call] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "op" in record:
            call = Call(path.stem, record["op"], record["t"], NEVER, "pending", record["args"], None)
            open_calls[record["n"]] = call
            yield call
        else:
            done = open_calls.pop(record["n"])
            done.end, done.outcome, done.result = record["t"], record["outcome"], record["result"]
