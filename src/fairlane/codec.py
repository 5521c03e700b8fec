"""Encode events as JSON text, and decode them.

The default codec is strict. It refuses an event that would not come back equal, with equal types, before anything is
written. Any object with the methods `encode` and `decode` can replace it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import inf
from typing import Any, NoReturn, Protocol

from typing_extensions import TypeVar

from fairlane.errors import USUAL_ERRORS, EventEncodingError, EventTooLarge

MAX_EVENT_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 200
MAX_INTEGER_DIGITS = 4300

_LARGEST = 10**MAX_INTEGER_DIGITS
_LARGEST_BITS = _LARGEST.bit_length()


EventT = TypeVar("EventT", default=Any)


class Codec(Protocol[EventT]):
    """Encode events as JSON text and decode them, for example with a pydantic or msgspec model.

    The type of its events becomes the type of `lease.event`.

    If `encode` or `decode` raises one of `fairlane.errors.USUAL_ERRORS`, such as ValueError, the caller receives
    `EventEncodingError` or `EventDecodingError`. A codec can name more exceptions in an attribute `errors`, a tuple
    such as `(msgspec.MsgspecError,)`. All other exceptions pass unchanged, since a signal handler may have raised them.
    """

    def encode(self, event: EventT, /) -> str:
        """Return the event as JSON text."""

    def decode(self, text: str, /) -> EventT:
        """Return the event that `encode` made this text from."""


def errors_of(codec: Codec[Any]) -> tuple[type[Exception], ...]:
    """Return the exceptions with which a codec reports that it failed."""
    return (*USUAL_ERRORS, *getattr(codec, "errors", ()))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in _INFINITE:
        raise ValueError(f"{text:.50} is larger than any float")
    return number


_INFINITE = (inf, -inf)
_lenient = json.JSONDecoder(parse_constant=_refuse_constant)
_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_scan: Any = _decoder.scan_once  # type: ignore[attr-defined]
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


class JsonCodec:
    """Strict JSON: None, bool, int, float, str, list, and dict with string keys."""

    def encode(self, event: object) -> str:
        """Return the event as compact JSON text.

        Raises:
            EventEncodingError: the event contains NaN, an infinity, a key that is not a string, a lone surrogate, a
                tuple or another Python type, more than 200 levels, or an integer of more than 4,300 digits.
        """
        _check(event)
        try:
            text = _encoder.encode(event)
        except (ValueError, TypeError) as error:
            raise EventEncodingError(str(error)) from error
        return text

    def decode(self, text: str) -> Any:
        """Return the event.

        Raises:
            ValueError: the text is not strict JSON, or `encode` would refuse the event. Such a text can only have been
                written with SQL.
        """
        try:
            event, end = _scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):  # space around the value, which this codec never writes, or not JSON
            event = _decoder.decode(text)
        if "\\u" in text or (len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH):
            self.encode(event).encode()  # refuses lone surrogates and more than MAX_DEPTH levels
        return event


def encode_event(codec: Codec[EventT], event: EventT) -> str:
    """Encode an event with any codec and check the result by the same rules.

    Raises:
        EventEncodingError: the codec failed, or its result is not strict JSON text that UTF-8 can encode.
        EventTooLarge: the text takes more than 8 MiB.
    """
    try:
        text = codec.encode(event)
        if not isinstance(text, str):
            raise EventEncodingError(f"the codec returned {type(text).__name__}, not str")
        text = str.__str__(text)  # drivers treat subclasses of str differently
        size = len(text.encode())
        if type(codec) is not JsonCodec:
            _lenient.decode(text)  # allows numbers larger than any float: the codec's own decoder may read them
    except EventEncodingError:
        raise
    except UnicodeEncodeError as error:
        raise EventEncodingError("a string holds a lone surrogate") from error
    except errors_of(codec) as error:
        raise EventEncodingError(f"{type(error).__name__}: {error}") from error
    if size > MAX_EVENT_BYTES:
        raise EventTooLarge(size, MAX_EVENT_BYTES)
    return text


def _check(event: object) -> None:
    """Refuse values that the json module would change without an error: it makes keys strings and tuples lists."""
    levels: list[tuple[Iterable[object], int]] = [((event,), 1)]
    while levels:
        values, depth = levels.pop()
        for value in values:
            if value is None or isinstance(value, (str, float)):
                continue  # NaN, infinities and surrogates are refused by the encoder itself
            if isinstance(value, int):
                if value.bit_length() >= _LARGEST_BITS - 1 and abs(value) >= _LARGEST:
                    raise EventEncodingError(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
                continue
            if not isinstance(value, (dict, list)):
                raise EventEncodingError(f"{type(value).__name__} is not a JSON type")
            if depth > MAX_DEPTH:
                raise EventEncodingError(f"it is nested more than {MAX_DEPTH} levels deep")
            if isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        raise EventEncodingError(f"the key {key!r:.100} is a {type(key).__name__}, not a string")
                levels.append((value.values(), depth + 1))
            else:
                levels.append((value, depth + 1))
