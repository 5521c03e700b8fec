"""Programs: operations written once as generators, driven synchronously or asynchronously.

A program yields requests and receives answers; what a request means is between a backend's core and its two
executors. Driver errors are thrown into the program, so that it may handle them or let them through.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from fairlane.signals import raised_by_handler

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for some seconds without holding a connection. Every program may yield it; its answer is to be ignored."""

    seconds: float


Program: TypeAlias = Generator[RequestT | Sleep, AnswerT, ResultT]
"""What it asks for, what it is answered, and what it returns in the end."""


def run(program: Program[RequestT, AnswerT, ResultT], execute: Callable[[RequestT], AnswerT]) -> ResultT:
    """Drive a program with blocking calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    time.sleep(request.seconds)
                    answer = cast(AnswerT, None)
                else:
                    answer = execute(request)
            except BaseException as error:
                request = program.throw(raised_by_handler(error) or error)
            else:
                request = program.send(answer)
    except StopIteration as stop:
        result: ResultT = stop.value
        return result


async def run_async(
    program: Program[RequestT, AnswerT, ResultT], execute: Callable[[RequestT], Awaitable[AnswerT]]
) -> ResultT:
    """Drive the very same program with awaited calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    await _sleep(request.seconds)
                    answer = cast(AnswerT, None)
                else:
                    answer = await execute(request)
            except BaseException as error:
                request = program.throw(raised_by_handler(error) or error)
            else:
                request = program.send(answer)
    except StopIteration as stop:
        result: ResultT = stop.value
        return result


async def _sleep(seconds: float) -> None:
    from asyncio import sleep  # whoever uses only blocking calls need not load it

    await sleep(seconds)
