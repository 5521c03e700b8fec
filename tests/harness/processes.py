"""Other processes that use the queue under test."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Self

from fairlane import Lease
from tests.harness.queues import Queue

ROOT = Path(__file__).resolve().parents[2]


class OtherProcess:
    """A worker in a separate process, with its own clock and time zone; see `driver.py`."""

    def __init__(self, queue: Queue, *, shift: float = 0.0, **environment: str) -> None:
        self._arguments = (queue.twin, queue.kit.url(queue.name), queue.name)
        self._environment = {**os.environ, "FAIRLANE_TEST_CLOCK_SHIFT": str(shift), **environment}
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.harness.driver", *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=self._environment,
        )
        assert await self._line() == "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        assert line, "the other process has ended"
        return line.decode().strip()

    async def call(self, operation: str, *arguments: Any) -> Any:
        """Call an operation there. Return plain values, a lease as a list, an error as `Name: text`."""
        assert self._process.stdin is not None
        given = [_fields(item) if isinstance(item, Lease) else item for item in arguments]
        self._process.stdin.write(json.dumps([operation, *given]).encode() + b"\n")
        await self._process.stdin.drain()
        return json.loads(await self._line())

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()


def _fields(lease: Lease) -> list[Any]:
    return [lease.group_id, lease.event, lease.seq, lease.token, lease.attempts]
