"""Programs: operations written once as generators, driven synchronously or asynchronously.

A program yields requests and receives answers; what a request means is between a backend's core and its two
executors. Driver errors are thrown into the program, so that it may handle them or let them through.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")
Program = Generator[Any, Any, T]


@dataclass(slots=True)  # not frozen: that takes four times as long to make, and there is one for every operation
class Call:
    """Ask the backend for one stored operation, in one round trip. The answer is a list of rows."""

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for some seconds without holding a connection. The answer is None."""

    seconds: float


def run(program: Program[T], execute: Callable[[Any], Any]) -> T:
    """Drive a program with blocking calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    answer = None
                    time.sleep(request.seconds)
                else:
                    answer = execute(request)
            except BaseException as error:
                request = program.throw(error)
            else:
                request = program.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_async(program: Program[T], execute: Callable[[Any], Awaitable[Any]]) -> T:
    """Drive the very same program with awaited calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    answer = None
                    await asyncio.sleep(request.seconds)
                else:
                    answer = await execute(request)
            except BaseException as error:
                request = program.throw(error)
            else:
                request = program.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
