"""Find exceptions that a signal handler has raised, such as the time limit of a job. They are no errors of drivers."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any


def raised_by_handler(error: BaseException) -> BaseException | None:
    """Return the exception that a signal handler raised and that led to `error`, or None if there was none.

    A handler may raise the same classes as drivers, most often TimeoutError. Only the traceback shows the difference:
    it contains the code of the handler. This takes some time, so call it only after a failure.
    """
    codes = frozenset(_codes())
    seen: set[int] = set()
    found: BaseException | None = error
    while codes and found is not None and id(found) not in seen:
        seen.add(id(found))
        trace = found.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return found
            trace = trace.tb_next
        found = found.__cause__ or found.__context__
    return None


def _codes() -> Iterator[CodeType]:
    """Yield the code of every handler that is written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        if not callable(handler):
            continue  # the default of the system, or ignored
        called: Any = type(handler).__call__  # if the handler is an object of a class with this method
        for function in (handler, called):
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                yield code
