"""What the README tells DBAs and operators of Postgres is what they see."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import psycopg
import pytest

import fairlane
from tests.commands import CHECKOUT, Done, alembic
from tests.commands import fairlane as command
from tests.schema.postgres_database import Database, fresh_database

README = (CHECKOUT / "README.md").read_text()
SECRET = "p%@/ss"
FIGURE = re.compile(r"\d+\.\d+|\d+ min \d+|\b(120|119|118|60|59|58)\b")
"""What depends on when one looks."""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database in which the README's SQL for DBAs was carried out, with names of our own for the roles."""
    with fresh_database() as made:
        made.roles |= {role: f"{made.name}_{role}" for role in ("dba", "orders_owner", "orders_app", "orders_reader")}
        block = re.search(r"^```sql\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
        assert block is not None
        with made.connect() as connection:
            connection.execute(f"create role {made.roles['dba']} login password '{SECRET}'")
            connection.execute(named(made, block[1]))
            for role in ("orders_app", "orders_reader"):
                connection.execute(f"alter role {made.roles[role]} password '{SECRET}'")
        yield made


@pytest.fixture(scope="module")
def migration(database: Database) -> Done:
    """The README's migration of that database, done: each test needs it, whichever worker it is given to."""
    return command(*shown_command(database, "fairlane migrate --url postgresql://dba")[1:]).ok()


def named(database: Database, text: str) -> str:
    """A text of the README with this database's names in the place of its own."""
    return re.sub(r"\b(dba|orders_owner|orders_app|orders_reader)\b", lambda found: database.roles[found[1]], text)


def shown_command(database: Database, start: str) -> list[str]:
    """The arguments of the command of the README that begins like this."""
    line = next(line for line in README.splitlines() if line.startswith(start))
    words = shlex.split(named(database, line.partition("#")[0]))
    return [database.url("dba") if word.endswith("@db/app") else word for word in words]


def test_the_path_of_a_dba(database: Database, migration: Done):
    assert migration.out.endswith("0001.\n")
    assert "Ready" in command(*shown_command(database, "fairlane status")[1:]).ok().out
    assert alembic(database.url("dba"), "orders", *shown_command(database, "alembic -x")[-2:]).code == 0
    with database.connect() as connection:
        found = connection.execute(
            "select relname from pg_class where relnamespace = 'orders'::regnamespace and relkind in ('r', 'v', 'S')"
            " union select proname from pg_proc where pronamespace = 'orders'::regnamespace"
        ).fetchall()
    created = README.partition("- **What is created.**")[2].partition("In SQLite")[0]
    assert {name for (name,) in found} == set(re.findall(r"`([a-z_]+)`", created))
    script = command(*shown_command(database, "fairlane migrate --url postgresql:// ")[1:7]).ok().out
    assert script.startswith("BEGIN;")


@pytest.mark.usefixtures("migration")
def test_the_path_of_an_operator(database: Database):
    """The README's group of orders, made again: its tables come out, but for the figures that are of a moment."""
    with fairlane.connect(database.url("orders_app"), "orders") as queue:
        for kind in ("placed", "paid", "shipped"):
            queue.publish("order-4711", {"type": kind})
        queue.publish("order-4712", {"type": "placed"})
        queue.claim("worker-a", 60)
        queue.nack(queue.claim("worker-a", 60), 120)
        queue.publish("order-4713", {"type": "placed"}, 3)
        queue.publish("order-4713", {"type": "paid"})
        queue.publish("order-4714", {"type": "placed"})
    shown = README.partition("## For operators")[2]
    queries = re.findall(r"^\$ psql .*?-c \"(.*?)\"\n(.*?)\n\n?(?=\$|```)", shown, re.DOTALL | re.MULTILINE)
    assert len(queries) == 3
    with psycopg.connect(database.url("orders_reader")) as reader:
        for query, table in queries:
            cursor = reader.execute(query.encode())
            heading, _, *lines = table.rstrip().splitlines()
            assert [column.name for column in cursor.description or ()] == cells(heading)
            rows = [["" if cell is None else plain(cell) for cell in row] for row in cursor]
            assert [[figures(cell) for cell in row] for row in rows] == [
                [figures(cell) for cell in cells(line)] for line in lines
            ]
    done: Done = command("groups", "--url", database.url("orders_reader"), "--queue", "orders").ok()
    wanted = shown.partition("$ fairlane groups --queue orders\n")[2].partition("```")[0]
    assert [figures(line) for line in done.out.splitlines()] == [figures(line) for line in wanted.splitlines()]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def plain(cell: object) -> str:
    return json.dumps(cell, separators=(",", ":")) if isinstance(cell, dict) else str(cell)


def figures(text: str) -> str:
    return FIGURE.sub("#", text).replace(" ", "")
