"""Raise an exception at every line that an operation runs through, one after the other, as a signal handler may."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TimeLimit(Exception):
    """The kind of exception that task queues raise in a signal handler."""


def interrupted(operation: Callable[[], Any], at: int, within: str) -> TimeLimit | None:
    """Run an operation, and raise TimeLimit before line number `at` of the lines that it runs in files below `within`.

    Returns:
        The exception with its traceback, whose frames hold what they held; None if there was no such line.
    """
    left = at

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if within not in frame.f_code.co_filename:
            return None
        # `try:` is traced too, and a `with` once more at its end; Python runs no signal handler at these points
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith(("with ", "try:")):
            if left == 0:
                sys.settrace(None)
                raise TimeLimit(f"{frame.f_code.co_qualname}:{frame.f_lineno} {line}")
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except TimeLimit as error:
        return error
    finally:
        sys.settrace(before)
    return None
