"""Raise an exception at every line that an operation runs through, one after the other, as a signal handler may."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TimeLimit(Exception):
    """What task queues raise out of a signal handler."""


def interrupted(operation: Callable[[], Any], at: int, within: str) -> bool:
    """Run an operation, and raise TimeLimit before the line number `at` of those that it runs in files below `within`.

    Returns:
        Whether there was such a line.
    """
    left = at

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if within not in frame.f_code.co_filename:
            return None
        # a trace comes once more to the line of a `with` before it is left, where Python itself runs no handler
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith("with "):
            if left == 0:
                sys.settrace(None)
                raise TimeLimit()
            left -= 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except TimeLimit:
        return True
    finally:
        sys.settrace(before)
    return False
