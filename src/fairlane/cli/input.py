"""Read the input of commands: UTF-8 in every locale, and JSON that Python does not change."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from fairlane.codec import MAX_INTEGER_DIGITS


def utf8(value: str | None) -> str | None:
    """Decode an argument as UTF-8. Python has decoded it with the encoding of the locale.

    Raises:
        ValueError: it is not UTF-8.
    """
    if value is None:
        return None
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        raise ValueError(f"an argument is not UTF-8: {value!r:.100}") from None


def read_stdin() -> str:
    """Return all of standard input.

    Raises:
        ValueError: it is not UTF-8.
    """
    return decoded(sys.stdin.buffer.read(), "stdin")


def decoded(text: bytes, source: str) -> str:
    """Return bytes as text, without a byte order mark.

    Args:
        source: name of the input, for the message of an error.

    Raises:
        ValueError: they are not UTF-8.
    """
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8: {error.reason} at byte {error.start}") from None


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON text, if it would come back equal.

    Args:
        source: name of the input, for the message of an error.

    Raises:
        ValueError: it is not JSON, an object has a key twice, or a float would round a number.
    """
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError(f"{source} is nested too deep") from None
    except _Unequal as error:
        raise ValueError(f"{source} would not come back equal: {error}") from None
    except ValueError as error:
        raise ValueError(f"{source} is not JSON: {error}; a text needs its quotes, such as '\"text\"'") from None


class _Unequal(ValueError):
    """The text is JSON, but Python would change its value."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _exact(text: str) -> float:
    number = float(text)
    try:
        equal = Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # an exponent of some twenty digits
        equal = False
    if not equal:
        raise _Unequal(f"a float would round {text:.60} to {number!r}; write the number as a string")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _Unequal(f"an object has the key {json.dumps(twice):.100} twice")
    return found


def _integer(text: str) -> int:
    if len(text.removeprefix("-")) > MAX_INTEGER_DIGITS:
        raise _Unequal(f"an integer has more than {MAX_INTEGER_DIGITS:,} digits; write it as a string")
    return int(text)


_decoder = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_exact, parse_int=_integer, object_pairs_hook=_unique
)
