"""HTTP requests and answers between the listener and the service."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .bodies import Statement
from .faults import Switch

VERSION = "v10.2.7"
JSON = "application/json; charset=utf-8"

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> str:
        return urlsplit(self.target).query


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One request that has been accepted."""

    request: Request
    params: dict[str, str]
    statements: tuple[Statement, ...] = ()
    switch: Switch | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.params

    def seconds(self, name: str, default: float = 0.0) -> float:
        return duration(self.params.get(name, "")) or default

    @property
    def level(self) -> str:
        """Return the read consistency: `auto`, and values that rqlite does not know, mean weak on a voting node."""
        level = self.params.get("level", "").lower()
        return level if level in ("none", "weak", "linearizable", "strong") else "weak"

    @property
    def endpoint(self) -> str:
        return self.request.path.rstrip("/").rpartition("/")[2]

    @property
    def sql(self) -> str:
        return "\n".join(each.sql for each in self.statements)


def parameters(request: Request) -> dict[str, str]:
    """If a name has several values, the first one counts (http/query_params.go, `NewQueryParams`)."""
    return dict(reversed(parse_qsl(request.query, keep_blank_values=True)))


def duration(text: str) -> float | None:
    """Return a Go duration such as `1m30s` in seconds; None if it is not one."""
    parts = _DURATION.findall(text)
    if text == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text.lstrip("+-"):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def text(status: int, message: str) -> Answer:
    """`http.Error` of Go."""
    headers = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return Answer(status, f"{message}\n".encode(), headers)


def plain(status: int, message: str) -> Answer:
    return Answer(status, message.encode(), {"Content-Type": "text/plain; charset=utf-8"})


def as_json(value: Any, pretty: bool) -> Answer:
    try:
        if pretty:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=4)
        else:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an infinite REAL: encoding/json of Go refuses it as well
        return text(500, f"json: unsupported value: {error}")
    return Answer(200, body.encode(), {"Content-Type": JSON})
