"""JSON in and out, as rqlite reads and writes it: http/request_parser.go and command/encoding/json.go."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

Value = int | float | str | bytes | bool | None

NO_STATEMENTS = "no statements"
INVALID_JSON = "invalid JSON body"
INVALID_REQUEST = "invalid request"
UNSUPPORTED_TYPE = "unsupported type"

_HEX = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INT64 = range(-(2**63), 2**63)


class BadRequest(Exception):
    """The body is refused: HTTP 400 with this text."""


@dataclass(frozen=True)
class Statement:
    sql: str
    parameters: tuple[tuple[str, Value], ...] = ()  # (name, value), the name empty for a positional one
    returns_rows: bool = False  # ForceQuery


@dataclass
class Changed:
    """The result of a write."""

    last_insert_id: int = 0
    rows_affected: int = 0


@dataclass
class Rows:
    """The result of a read, or of a write whose RETURNING clause was seen."""

    columns: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    values: list[list[Value]] = field(default_factory=list)
    error: str = ""


@dataclass
class Failed:
    """An SQL error in any request except a read."""

    error: str


Result = Changed | Rows | Failed


def parse_request(body: bytes) -> list[Statement]:
    """Return the statements of a body such as `["sql", ["sql ?", 1], ["sql :a", {"a": 1}]]`.

    Raises:
        BadRequest: with the texts of `ParseRequest`.
    """
    # Go's decoder replaces invalid UTF-8 and stops after the first value: what follows it is not looked at
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    try:
        decoder = json.JSONDecoder(parse_int=_number, parse_float=_float, parse_constant=_constant)
        items, _ = decoder.raw_decode(text)
    except (ValueError, RecursionError):
        raise BadRequest(INVALID_JSON) from None
    if not isinstance(items, list):
        raise BadRequest(INVALID_REQUEST)
    if not items:
        raise BadRequest(NO_STATEMENTS)
    return [_statement(item) for item in items]


def _statement(item: Any) -> Statement:
    if isinstance(item, str):
        return Statement(_text(item))
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        raise BadRequest(INVALID_REQUEST)
    parameters: list[tuple[str, Value]] = []
    for value in item[1:]:
        if isinstance(value, dict):
            parameters += [(_text(name), _parameter(each)) for name, each in value.items()]
        else:
            parameters.append(("", _parameter(value)))
    return Statement(_text(item[0]), tuple(parameters))


def _parameter(value: Any) -> Value:
    """Return a JSON value as SQLite will store it (`makeParameter`)."""
    if isinstance(value, str):
        # A text that happens to look like this is stored as a BLOB, also an event or an id: rqlite pull request 1910
        found = _HEX.fullmatch(value)
        return bytes.fromhex(found.group(1)) if found else _text(value)
    if isinstance(value, list):
        if all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 256 for each in value):
            return bytes(value)
        raise BadRequest(UNSUPPORTED_TYPE)
    if isinstance(value, dict):
        raise BadRequest(UNSUPPORTED_TYPE)
    number: Value = value
    return number


def _text(value: str) -> str:
    return _LONE_SURROGATE.sub("�", value)


def _number(text: str) -> int | float:
    """`json.Number`: an int64 if it is one, else a float64."""
    value = int(text)
    return value if value in _INT64 else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadRequest(f"invalid number {text}")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def encode_results(results: list[Result], *, associative: bool, blob_array: bool, timings: bool) -> list[Any]:
    encoded = []
    for result in results:
        if isinstance(result, Failed):
            entry: dict[str, Any] = {"error": result.error}
        elif isinstance(result, Changed):
            entry = _kept(last_insert_id=result.last_insert_id, rows_affected=result.rows_affected)
            if associative:
                entry["rows"] = None  # type ResultWithRows: tells a write from a read
        elif associative:
            entry = _associative(result, blob_array)
        else:
            values = [[encode_value(value, blob_array) for value in row] for row in result.values]
            entry = _kept(columns=result.columns, types=result.types, values=values, error=result.error)
        if timings:
            entry["time"] = 0.000123
        encoded.append(entry)
    return encoded


def _kept(**members: Any) -> dict[str, Any]:
    """`omitempty`: members that are zero or empty are not written."""
    return {name: value for name, value in members.items() if value}


def _associative(result: Rows, blob_array: bool) -> dict[str, Any]:
    rows = [
        {name: encode_value(value, blob_array) for name, value in zip(result.columns, row, strict=True)}
        for row in result.values
    ]
    entry = _kept(types=dict(zip(result.columns, result.types, strict=True)))
    return {**entry, "rows": rows, **_kept(error=result.error)}


def encode_value(value: Value, blob_array: bool) -> Any:
    if isinstance(value, bytes):
        return list(value) if blob_array else base64.b64encode(value).decode()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)  # Go writes 1.0 as 1: a REAL cannot be told from an INTEGER
    return value
