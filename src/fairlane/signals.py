"""Exceptions that come out of a signal handler, such as the time limit of a job, must not be taken for a driver's."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any


def raised_by_handler(error: BaseException) -> BaseException | None:
    """Return the exception that a signal handler raised and that became `error`, None if there was none.

    A handler may raise what drivers raise as well, most often TimeoutError. Only the traceback tells them apart: it
    leads through the handler. This takes some time, so ask it after a failure only.
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
            continue  # nobody's, or the system's own
        called: Any = type(handler).__call__  # of an object of a class with this method
        for function in (handler, called):
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                yield code
