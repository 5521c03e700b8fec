"""Recognise the exceptions that a signal handler raised."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlane.signals import raised_by_handler


def raising(*_: object) -> None:
    raise TimeoutError("out of a handler")


def driver() -> None:
    """Turn it into other errors twice, with a cause and without one, as drivers do."""
    try:
        try:
            signal.raise_signal(signal.SIGALRM)
        except TimeoutError as error:
            raise ConnectionError("a driver's own") from error
    except ConnectionError:
        raise RuntimeError("one more")  # noqa: B904


class Limit:
    def method(self, *_: object) -> None:
        raise TimeoutError("out of a handler")

    def __call__(self, *_: object) -> None:
        raise TimeoutError("out of a handler")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


HANDLERS = (raising, Limit().method, Limit(), functools.partial(raising, 1), lambda *_: raising())


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "method", "object", "partial", "a function below it"])
def test_what_a_handler_raises_is_found_behind_other_errors(handler: Callable[..., Any]) -> None:
    """Guards against a time limit that is mistaken for an error of a connection."""
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(RuntimeError) as caught:
        driver()
    found = raised_by_handler(caught.value)
    assert isinstance(found, TimeoutError)
    assert str(found) == "out of a handler"


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, raising])
def test_an_error_of_the_connection_is_not_taken_for_a_handlers(handler: Any) -> None:
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(TimeoutError) as caught:
        raise TimeoutError("timed out")
    assert raised_by_handler(caught.value) is None
