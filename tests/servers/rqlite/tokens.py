"""Cut SQL into tokens, as far as the stand-in needs to understand it.

Strings, quoted names and comments are skipped as SQLite does (https://www.sqlite.org/lang_expr.html,
https://www.sqlite.org/lang_comment.html), so that a word inside one of them is never taken for SQL.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<blob>[xX]'[^']*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<foreign>`(?:[^`]|``)*`|\[[^\]]*\])
    | (?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<bind>\?\d*|[:@$]\w+)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """Return the token in lower case if it is a bare word or a punctuation mark, otherwise an empty string."""
        return self.text.lower() if self.kind in ("word", "mark") else ""


REMEMBERED_LENGTH = 20_000
"""Longer texts are not kept, since they contain data."""


def remembered(function: F) -> F:
    """Cache a function's results for texts: a client sends the same few statements again and again."""
    kept = functools.lru_cache(maxsize=2048)(function)

    @functools.wraps(function)
    def call(sql: str, *arguments: str) -> Any:
        return (kept if len(sql) < REMEMBERED_LENGTH else function)(sql, *arguments)

    return cast(F, call)


@remembered
def tokens(sql: str) -> tuple[Token, ...]:
    """Yield all tokens except blanks and comments."""
    return tuple(
        Token(str(found.lastgroup), found.group(), found.start())
        for found in _TOKEN.finditer(sql)
        if found.lastgroup not in ("space", "comment")
    )


@remembered
def statements(sql: str) -> tuple[str, ...]:
    """Cut a text at its semicolons, except those inside a trigger's body; a trailing semicolon ends nothing new."""
    parts = []
    start = 0
    for token in tokens(sql):
        # sqlite3_complete knows the END of CREATE TRIGGER: https://www.sqlite.org/c3ref/complete.html
        if token.word == ";" and sqlite3.complete_statement(sql[start : token.end]):
            parts.append(sql[start : token.end])
            start = token.end
    if tokens(sql[start:]):
        parts.append(sql[start:])
    return tuple(parts)


@remembered
def placeholders(sql: str) -> tuple[str | None, ...]:
    """Return the parameters of one statement in the order of SQLite's own numbers; None for those without a name.

    `?` takes the next number, `?NNN` that number, and a name the number of its first use:
    https://www.sqlite.org/lang_expr.html#varparam
    """
    found: list[str | None] = []
    for token in tokens(sql):
        if token.kind != "bind":
            continue
        if token.text == "?":
            found.append(None)
        elif token.text[0] == "?":
            found.extend([None] * (int(token.text[1:]) - len(found)))
        elif token.text not in found:
            found.append(token.text)
    return tuple(found)


def numbered(sql: str) -> str:
    """Return the statement with ?1, ?2, … if it mixes named and nameless parameters, which Python would refuse."""
    names = placeholders(sql)
    if all(names) or not any(names):
        return sql
    count = 0
    changed = sql
    for token in tokens(sql):
        if token.kind != "bind":
            continue
        if token.text == "?":
            count += 1
            number = count
        elif token.text[0] == "?":
            number = int(token.text[1:])
        else:
            number = names.index(token.text) + 1
        count = max(count, number)
        at = token.start + len(changed) - len(sql)
        changed = f"{changed[:at]}?{number}{changed[at + len(token.text) :]}"
    return changed
