"""One statement on one connection that Fairlane opened: send it, prepare it, and read its rows.

A cursor of psycopg does this for values of any type, and spends most of the client's CPU time of a call on it. Here
every value is a str, an int, a float or None, and every statement casts its arguments, so the text form of a value is
enough. The functions of `psycopg.pq` and `psycopg.generators` below are those that a cursor calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.abc import Transformer as Converter
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from fairlane.backends.stored import Row, Rows

Arguments = Mapping[str, Any]

PLACEHOLDER = re.compile(r"%\((\w+)\)s")

FAILED = ExecStatus.FATAL_ERROR


class Statement:
    """A statement on a connection.

    Args:
        text: with the placeholders of psycopg.
    """

    def __init__(self, text: str) -> None:
        self._arguments: list[str] = []
        self._text = PLACEHOLDER.sub(self._numbered, text).encode()
        self._converter: Converter = Transformer()  # without a connection, since that would be a reference cycle
        self._name: bytes | None = None
        self._runs = 0
        self._columns: tuple[str, ...] = ()

    def _numbered(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self._arguments:
            self._arguments.append(name)
        return f"${self._arguments.index(name) + 1}"

    def steps(self, pgconn: PGconn, arguments: Arguments, threshold: int | None) -> PQGen[Rows]:
        """Run it, and return its rows.

        Args:
            pgconn: the connection.
            arguments: the values by name; more are ignored.
            threshold: the number of runs after which it is prepared; None means never.

        Raises:
            psycopg.Error: the error of the server, or of the connection.
        """
        values = [_encoded(arguments[name]) for name in self._arguments]
        if threshold is None or (self._name is None and self._runs < threshold):
            self._runs += 1
            pgconn.send_query_params(self._text, values)
        else:
            if self._name is None:
                # An undetected pooler may run a call in the session of another client. A name that this session does
                # not know makes the call fail; a name that it knows, such as a number, would run another statement.
                # After an interruption the name may be in use already, so each try has a new one.
                name = f"fairlane_{token_hex(8)}".encode()
                pgconn.send_prepare(name, self._text)
                yield from self._answer(pgconn)
                self._name = name
            pgconn.send_query_prepared(self._name, values)
        return self._rows((yield from self._answer(pgconn)))

    @staticmethod
    def _answer(pgconn: PGconn) -> PQGen[PGresult]:
        results: list[PGresult] = yield from generators.execute(pgconn)
        result = results[-1]
        if result.status == FAILED:
            raise error_from_result(result)
        return result

    def _rows(self, result: PGresult) -> Rows:
        if not result.ntuples:
            return []
        if not self._columns:
            self._columns = tuple((result.fname(number) or b"").decode() for number in range(result.nfields))
        converter = self._converter
        converter.set_pgresult(result)
        try:
            rows: Rows = converter.load_rows(0, result.ntuples, self._row)
            return rows
        finally:
            converter.set_pgresult(None)  # an idle connection would keep a large event

    def _row(self, values: Any) -> Row:
        return dict(zip(self._columns, values, strict=True))


def _encoded(value: str | float | None) -> bytes | None:
    """Return the text form of a value.

    Raises:
        psycopg.DataError: it has the character NUL, where libpq would end the value.
    """
    if value is None:
        return None
    encoded = (value if isinstance(value, str) else str(value)).encode()
    if b"\0" in encoded:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return encoded
