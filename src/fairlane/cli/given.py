"""What people give to commands: JSON that comes back equal, and UTF-8 whatever the locale says."""

from __future__ import annotations

import json
import os
import sys
from decimal import Decimal
from typing import Any, NoReturn


def utf8(value: str | None) -> str | None:
    """Return an argument as the UTF-8 that it is. Python has read it in the locale's encoding.

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


def decoded(text: bytes, what: str) -> str:
    """Return bytes as text, without a byte order mark.

    Raises:
        ValueError: they are not UTF-8.
    """
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from None


def parse_json(text: str, what: str) -> Any:
    """Return the value of a JSON text, if it would come back equal.

    Raises:
        ValueError: it is not JSON, a key comes twice in an object, or a float would round a number.
    """
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise ValueError(f"{what} is nested too deep") from None
    except _Unequal as error:
        raise ValueError(f"{what} would not come back equal: {error}") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from None


class _Unequal(ValueError):
    """JSON that Python would change."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _exact(text: str) -> float:
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise _Unequal(f"a float makes {number!r} of {text:.60}; write it as a string")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Unequal(f"the key {json.dumps(twice):.100} comes twice in an object")
    return found


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_exact, object_pairs_hook=_unique)
