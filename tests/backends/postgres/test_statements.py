"""Statements on the transport's own connections give the same values and errors as psycopg's cursors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from fairlane.backends.postgres.sessions import Opening, OwnConnection
from tests.harness import Queue

pytestmark = [pytest.mark.backends("postgres")]

EVERY_TYPE = "select %(a)s::text as a, %(b)s::integer as b, %(c)s::float8 as c, %(a)s::text || '!' as again"
VALUES: list[dict[str, Any]] = [
    {"a": "x", "b": 1, "c": 0.1},
    {"a": "", "b": -(2**31), "c": 1e300},
    {"a": "'\\ $1 %s %% \n\x01 \u20ac \U0001f600", "b": 0, "c": -0.0},
    {"a": None, "b": None, "c": None},
]


@pytest.fixture
def opened(queue: Queue) -> Iterator[Callable[[int | None], OwnConnection]]:
    made: list[OwnConnection] = []

    def another(threshold: int | None) -> OwnConnection:
        options = {"timeout": 10.0, "prepare_threshold": threshold}
        made.append(OwnConnection.opened(Opening.at(queue.kit.url(queue.name), options)))
        return made[-1]

    yield another
    for each in made:
        each.close()


@pytest.mark.parametrize("threshold", [None, 0, 2])
def test_values_arrive_as_they_were_sent(opened: Callable[[int | None], OwnConnection], threshold: int | None) -> None:
    """Guards against a second use of a placeholder under another number, and against a quoted or rounded value."""
    connection = opened(threshold)
    for values in VALUES:
        again = None if values["a"] is None else values["a"] + "!"
        assert connection.ask(EVERY_TYPE, values) == [{**values, "again": again}]


@pytest.mark.parametrize(("threshold", "prepared"), [(None, 0), (0, 1), (2, 0), (1, 1)])
def test_a_statement_is_prepared_after_so_many_runs(
    opened: Callable[[int | None], OwnConnection], threshold: int | None, prepared: int
) -> None:
    connection = opened(threshold)
    for _ in range(2):
        connection.ask("select 1 as one")
    found = connection.ask(
        "select count(*) as prepared from pg_prepared_statements where statement = 'select 1 as one'"
    )
    assert found == [{"prepared": prepared}]


@pytest.mark.parametrize("threshold", [None, 0])
def test_the_character_nul_is_refused_and_the_connection_goes_on(
    opened: Callable[[int | None], OwnConnection], threshold: int | None
) -> None:
    """Guards against libpq, which would send the part before it."""
    connection = opened(threshold)
    with pytest.raises(psycopg.DataError, match="NUL"):
        connection.ask("select %(a)s::text as a", {"a": "x\0y"})
    assert connection.ask("select %(a)s::text as a", {"a": "z"}) == [{"a": "z"}]


@pytest.mark.parametrize("threshold", [None, 0])
def test_an_error_has_its_code_and_the_connection_goes_on(
    opened: Callable[[int | None], OwnConnection], threshold: int | None
) -> None:
    """An error while it is prepared leaves it unprepared; an error while it runs does not."""
    connection = opened(threshold)
    for wrong, error in (
        ("select 1 / %(a)s::integer as a", psycopg.errors.DivisionByZero),
        ("select nothing", psycopg.errors.UndefinedColumn),
    ):
        for _ in range(2):
            with pytest.raises(error) as caught:
                connection.ask(wrong, {"a": 0})
            assert caught.value.sqlstate == error.sqlstate
            assert caught.value.diag.message_primary
    assert connection.ask("select 1 / %(a)s::integer as a", {"a": 1}) == [{"a": 1}]
    assert connection.at_rest


def test_a_statement_without_rows_and_one_with_many(opened: Callable[[int | None], OwnConnection]) -> None:
    connection = opened(0)
    text = "select n from generate_series(1, %(most)s::integer) as n"
    assert connection.ask(text, {"most": 0}) == []
    assert [row["n"] for row in connection.ask(text, {"most": 1000})] == list(range(1, 1001))
    assert connection.ask(text, {"most": 0}) == []
