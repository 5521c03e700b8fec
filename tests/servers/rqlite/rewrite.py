"""What rqlite does to the text of a statement before it goes into the Raft log.

Two decisions depend on its own SQL parser (github.com/rqlite/sql), see rqlite's command/sql/processor.go, `Process`:

- whether a write returns rows (`ForceQuery`): only if the text was parsed *and* a RETURNING clause was seen. The text
  is parsed only if it contains, anywhere and in any case, the literal `returning ` (v10: with a trailing blank), or
  something that may have to be rewritten. Otherwise the write runs and its rows are thrown away.
- `now` in date and time functions, RANDOM() and RANDOMBLOB(n) become literals, once, on the node that received the
  request: https://rqlite.io/docs/api/non-deterministic/. In DDL this freezes them for ever.

The stand-in replaces tokens in place. rqlite prints the whole statement again from its syntax tree, so in rqlite the
text in sqlite_master has other blanks and quotes.
"""

from __future__ import annotations

import functools
import random
import secrets
import time
from dataclasses import dataclass

from .tokens import REMEMBERED_LENGTH, Token, statements, tokens

Tokens = tuple[Token, ...]

TIME_MARKS = ("time(", "date(", "julianday(", "unixepoch(", "timediff(")  # processor.go, containsTime
RANDOM_MARKS = ("random(", "randomblob(")  # processor.go, containsRandom
RETURNING_MARK = "returning "

# Position of the argument that may be 'now', and how many arguments there must be (processor.go, `Visit`)
TIME_FUNCTIONS = {
    "date": ((0,), 1),
    "time": ((0,), 1),
    "datetime": ((0,), 1),
    "julianday": ((0,), 1),
    "unixepoch": ((0,), 1),
    "strftime": ((1,), 2),
    "timediff": ((0, 1), 2),
}
JULIAN_DAY_OF_EPOCH = 2440587.5
NOT_A_CALL_AFTER = {"into", "table", "exists", "references", "view", "."}
ENDS_ORDER_BY = {"limit", "returning", "rows", "range", "groups", "union", "except", "intersect", ";", ")"}


@dataclass(frozen=True)
class Processed:
    sql: str
    returns_rows: bool


def process(sql: str, *, rewrite_time: bool = True, rewrite_random: bool = True) -> Processed:
    """Return one statement as rqlite would put it into its log."""
    if len(sql) < REMEMBERED_LENGTH:
        lasting = _lasting(sql, rewrite_time, rewrite_random)
        if lasting is not None:
            return lasting
    return _process(sql, rewrite_time, rewrite_random)[0]


@functools.lru_cache(maxsize=512)
def _lasting(sql: str, rewrite_time: bool, rewrite_random: bool) -> Processed | None:
    """The same for a statement whose result never changes. Results are kept: a client sends the same few statements
    again and again."""
    processed, changes = _process(sql, rewrite_time, rewrite_random)
    return None if changes else processed


def _process(sql: str, rewrite_time: bool, rewrite_random: bool) -> tuple[Processed, bool]:
    """Return the new statement, and whether it has a part that will be different next time."""
    lowered = sql.lower()
    if not (
        RETURNING_MARK in lowered
        or (rewrite_time and any(mark in lowered for mark in TIME_MARKS))
        or (rewrite_random and any(mark in lowered for mark in RANDOM_MARKS))
    ):
        return Processed(sql, False), False
    # ParseStatement stops at the first semicolon: what follows is not looked at
    first = next(iter(statements(sql)), sql)
    found = tokens(first)
    if not parses(found):
        return Processed(sql, False), False
    changes, rewritten = _replacements(found, rewrite_time, rewrite_random)
    returns_rows = any(token.word == "returning" for token in found)
    # `stmts[i].Sql = rwStmt.String()`: a rewritten text has only the first statement
    if not rewritten:
        return Processed(sql, returns_rows), False
    if _verb(found) in ("update", "delete"):
        # rqlite/sql, ast.go: String() of UpdateStatement and DeleteStatement does not print the RETURNING clause, so
        # that the write is carried out and returns nothing; that of InsertStatement does
        at = next((token.start for token in found if token.word == "returning"), len(first))
        first, changes = first[:at], [change for change in changes if change[1] <= at]
    return Processed(_apply(first, changes), returns_rows), bool(changes)


def parses(found: Tokens) -> bool:
    """Return whether rqlite's parser accepts a text that SQLite accepts.

    It does in general. The exceptions: UPDATE … ORDER BY/LIMIT (parser.go, `parseUpdateStatement`), and what its
    scanner has no rule for (scanner.go: `[name]`, backticks, `~`, bare names that are not ASCII).
    """
    for token in found:
        if token.kind == "foreign" or (token.kind == "mark" and token.text in "~`['\"#"):
            return False
        if token.kind == "word" and not token.text.isascii():
            return False
    return not (_verb(found) == "update" and _has_at_top(found, {"order", "limit"}))


def julian_day(seconds: float | None = None) -> str:
    """`fmt.Sprintf("%f", …)`: six decimals, which is a step of 86 ms (processor.go, `julianDayAsNumberLit`)."""
    return f"{JULIAN_DAY_OF_EPOCH + (time.time() if seconds is None else seconds) / 86400:.6f}"


def _verb(found: Tokens) -> str:
    """Return the statement's first word after a WITH clause."""
    depth = 0
    for token in found:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if depth == 0 and token.word in ("select", "values", "insert", "replace", "update", "delete"):
            return token.word
        if token.word in ("create", "drop", "alter", "pragma", "explain"):
            return token.word
    return found[0].word if found else ""


def _has_at_top(found: Tokens, words: set[str]) -> bool:
    depth = 0
    for token in found:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if depth == 0 and token.word in words:
            return True
    return False


def _replacements(found: Tokens, rewrite_time: bool, rewrite_random: bool) -> tuple[list[tuple[int, int, str]], bool]:
    """Return spans of the text with their replacements, and whether rqlite prints the statement again at all."""
    changes: list[tuple[int, int, str]] = []
    rewritten = False
    ordered = _inside_order_by(found)
    day = julian_day()
    for at, token in enumerate(found[:-1]):
        if token.kind != "word" or found[at + 1].word != "(":
            continue
        if at and found[at - 1].word in NOT_A_CALL_AFTER:
            continue
        arguments, close = _arguments(found, at + 1)
        name = token.word
        if rewrite_time and name in TIME_FUNCTIONS and len(arguments) >= TIME_FUNCTIONS[name][1]:
            # set even if no argument is 'now': `rw.modified = true` stands outside of the test
            rewritten = True
            for position in TIME_FUNCTIONS[name][0]:
                argument = arguments[position]
                if len(argument) == 1 and _is_now(argument[0]):
                    changes.append((argument[0].start, argument[0].end, day))
        elif rewrite_random and not ordered[at] and close is not None:
            literal = _random_literal(name, arguments)
            if literal is not None:
                rewritten = True
                changes.append((token.start, close.end, literal))
    return changes, rewritten


def _random_literal(name: str, arguments: list[list[Token]]) -> str | None:
    if name == "random":
        return str(random.getrandbits(63))  # rand.Int63(): never negative
    if name == "randomblob" and len(arguments) == 1 and len(arguments[0]) == 1:
        size = arguments[0][0].text
        if size.isdigit():
            return f"x'{secrets.token_hex(max(int(size), 1))}'"
    return None


def _arguments(found: Tokens, opening: int) -> tuple[list[list[Token]], Token | None]:
    """Return the arguments of a call as tokens, and the parenthesis that closes it."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in found[opening:]:
        if token.word == "(":
            depth += 1
        elif token.word == ")":
            depth -= 1
            if depth == 0:
                return ([] if arguments == [[]] else arguments), token
        if token.word == "," and depth == 1:
            arguments.append([])
        elif not (token.word == "(" and depth == 1):
            arguments[-1].append(token)
    return arguments, None


def _is_now(token: Token) -> bool:
    """`'now'`, or the name now, bare or in double quotes (processor.go, `isNow`)."""
    return token.text.lower() in ("'now'", '"now"', "now")


def _inside_order_by(found: Tokens) -> list[bool]:
    """Return for each token whether it is in an ORDER BY term: RANDOM() is not replaced there."""
    inside: list[bool] = []
    open_at: list[int] = []  # depths of parentheses at which an ORDER BY is open
    depth = 0
    for at, token in enumerate(found):
        if open_at and token.word in ENDS_ORDER_BY and depth == open_at[-1]:
            open_at.pop()
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "by" and at and found[at - 1].word == "order":
            open_at.append(depth)
        inside.append(bool(open_at))
    return inside


def _apply(sql: str, changes: list[tuple[int, int, str]]) -> str:
    """Replace spans, which never overlap, from the end to the start."""
    for start, end, text in sorted(changes, reverse=True):
        sql = sql[:start] + text + sql[end:]
    return sql
