"""Programs are operations written once as generators. They are driven by blocking calls or by asyncio.

A program yields requests and receives answers. Only a backend's core and its two executors know what a request means.
Driver errors are thrown into the program, which may handle them or let them pass.
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
    """Wait for some seconds without using a connection. Every program may yield it and must ignore the answer."""

    seconds: float

    def wait(self) -> None:
        """Wait in this thread."""
        time.sleep(self.seconds)

    async def wait_async(self) -> None:
        """Wait in this task."""
        from asyncio import sleep  # imported here, since an application with only blocking calls does not need asyncio

        await sleep(self.seconds)


Program: TypeAlias = Generator[RequestT | Sleep, AnswerT, ResultT]
"""A generator: the type of its requests, the type of the answers, and the type of its result."""


def run(program: Program[RequestT, AnswerT, ResultT], execute: Callable[[RequestT], AnswerT]) -> ResultT:
    """Drive a program with blocking calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    request.wait()
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
    """Drive the same program with awaited calls and return its result."""
    try:
        request = next(program)
        while True:
            try:
                if isinstance(request, Sleep):
                    await request.wait_async()
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
