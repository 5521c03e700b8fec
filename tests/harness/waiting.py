"""Wait for a condition instead of a fixed time, and check that nothing takes too long."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


async def eventually(condition: Callable[[], Any], deadline: float = 10.0, *, pause: float = 0.01) -> Any:
    """Return the first true value of `condition`, plain or awaitable; fail after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, f"not within {deadline:g} seconds: {condition}"
        await asyncio.sleep(pause)


def counted_listeners(monkeypatch: pytest.MonkeyPatch, kind: Any) -> list[Any]:
    """Return the list of the listening connections of this kind that are opened from now on."""
    opened: list[Any] = []
    original = kind.opened

    def counted(*arguments: Any) -> Any:
        opened.append(original(*arguments))
        return opened[-1]

    monkeypatch.setattr(kind, "opened", counted)
    return opened


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"it took {took:.1f} seconds, more than {seconds:g}"
