"""Type checkers understand programs that use Fairlane: they know the type of an event, and refuse wrong uses.

Each program is read once by mypy --strict and once by basedpyright. They must refuse the lines that end in `# refused`,
and no others.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fairlane
from fairlane.backends import MANIFESTS

CHECKOUT = Path(__file__).resolve().parents[2]
URLS = {
    "memory": "memory://",
    "sqlite": "sqlite:///q.db",
    "postgres": "postgresql://host/db",
    "redis": "redis://host",
    "mongo": "mongodb://host",
    "libsql": "libsql://host",
    "rqlite": "rqlite://host",
    "sqs": "sqs://region/",
}
REQUIRED = {"rqlite": ", url='rqlite://host'"}  # beside a client

HEAD = """
from typing import Any, assert_type

import fairlane


class Order:
    def __init__(self, number: int) -> None:
        self.number = number


class OrderCodec:
    def encode(self, event: Order, /) -> str:
        return str(event.number)

    def decode(self, text: str, /) -> Order:
        return Order(int(text))


"""

EVENTS = """
def orders() -> None:
    queue = fairlane.connect("memory://", codec=OrderCodec())
    assert_type(queue, fairlane.Transport[Order])
    queue.publish("g", Order(1), 3, dedup_id="d")
    queue.publish("g", "a text")  # refused
    lease = queue.claim("w", 30)
    queue.ack(lease)  # refused
    assert lease is not None
    assert_type(lease, fairlane.Lease[Order])
    assert_type(lease.event, Order)
    assert_type(queue.extend(lease, 30), fairlane.Lease[Order])
    lease.event.amount  # refused
    lease.seq = 3  # refused


async def orders_for_asyncio() -> None:
    async with await fairlane.connect_async("memory://", codec=OrderCodec()) as queue:
        assert_type(queue, fairlane.AsyncTransport[Order])
        await queue.publish("g", Order(1))
        await queue.publish("g", 1)  # refused
        assert_type(await queue.claim("w", 30), fairlane.Lease[Order] | None)
        queue.publish("g", Order(1))  # refused


def json_values() -> None:
    queue = fairlane.connect()
    assert_type(queue, fairlane.Transport[Any])
    queue.publish("g", {"n": [1, None]})
    queue.publish("g", event=1, priority="high")  # refused
    fairlane.connect("memory://", codec=Order(1))  # refused


def handle(queue: fairlane.Transport, lease: fairlane.Lease) -> None:  # events of any type
    queue.ack(lease)
"""

CLIENTS = """
import sqlite3

import aiosqlite
import httpx
import libsql_client
import psycopg
import psycopg_pool
import pymongo
import redis
import redis.asyncio
import requests


def on_clients_of_the_application(mongo: pymongo.MongoClient[dict[str, Any]]) -> None:
    fairlane.InMemoryTransport()
    fairlane.InMemoryTransport(fairlane.MemoryStore())
    fairlane.SqliteTransport(sqlite3.connect("q.db"))
    fairlane.PostgresTransport(psycopg.connect("postgresql://host/db"))
    fairlane.PostgresTransport(psycopg_pool.ConnectionPool("postgresql://host/db"))
    fairlane.RedisTransport(redis.Redis())
    fairlane.MongoTransport(mongo)
    fairlane.LibsqlTransport(libsql_client.create_client_sync("http://host"))
    fairlane.RqliteTransport(requests.Session(), url="rqlite://host")
    assert_type(fairlane.SqliteTransport(sqlite3.connect("q.db"), codec=OrderCodec()), fairlane.SqliteTransport[Order])
    assert_type(fairlane.InMemoryTransport(), fairlane.InMemoryTransport[Any])


async def on_clients_for_asyncio(mongo: pymongo.AsyncMongoClient[dict[str, Any]]) -> None:
    fairlane.AsyncInMemoryTransport(fairlane.MemoryStore())
    fairlane.AsyncSqliteTransport(await aiosqlite.connect("q.db"))
    fairlane.AsyncPostgresTransport(await psycopg.AsyncConnection.connect("postgresql://host/db"))
    fairlane.AsyncPostgresTransport(psycopg_pool.AsyncConnectionPool("postgresql://host/db"))
    fairlane.AsyncRedisTransport(redis.asyncio.Redis())
    fairlane.AsyncMongoTransport(mongo)
    fairlane.AsyncLibsqlTransport(libsql_client.create_client("http://host"))
    fairlane.AsyncRqliteTransport(httpx.AsyncClient(), url="rqlite://host")


def on_those_of_the_other_twin() -> None:
    fairlane.AsyncSqliteTransport(sqlite3.connect("q.db"))  # refused
    fairlane.AsyncPostgresTransport(psycopg.connect("postgresql://host/db"))  # refused
    fairlane.RedisTransport(redis.asyncio.Redis())  # refused
    fairlane.AsyncRqliteTransport(requests.Session(), url="rqlite://host")  # refused
"""


def of_each_backend() -> str:
    """Return a program that makes every transport: of a URL with its options, with a misspelt option, and of something
    that is not a client."""
    lines = ["async def each() -> None:"]
    for name, manifest in MANIFESTS.items():
        # options with the default None are left out, since None may mean only "not given"
        given = [option for option in manifest.options if option.default is not None]
        options = "".join(f", {option.name}={option.default!r}" for option in given)
        for kind, wait in zip(manifest.transports(), ("", "await "), strict=True):
            of = f"fairlane.{kind.__name__}"
            lines += [
                f"    assert_type({wait}{of}.from_url({URLS[name]!r}, codec=OrderCodec(){options}), {of}[Order])",
                f"    assert_type({wait}{of}.from_url({URLS[name]!r}, queue='orders', startup_timeout=1.0), {of}[Any])",
                f"    {wait}{of}.from_url({URLS[name]!r}, time_out=3)  # refused",
                f"    {wait}{of}.from_url(42)  # refused",
                f"    {of}(42{REQUIRED.get(name, '')})  # refused",
            ]
    return "\n".join([*lines, ""])


def mypy(program: Path) -> dict[int, str]:
    """Return what mypy refuses, by line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(program)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=170)
    assert done.stderr == ""
    errors = re.findall(rf"{program.name}:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {int(line): text for line, text in errors}


def basedpyright(program: Path) -> dict[int, str]:
    """Return what basedpyright refuses, by line; its rules are pyright's strict ones."""
    (program.parent / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "reportMissingTypeStubs": False, "reportUnusedFunction": False})
    )
    command = [str(Path(sys.executable).with_name("basedpyright")), "--level", "error", "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable, program.name], cwd=program.parent, capture_output=True, timeout=170
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {item["range"]["start"]["line"] + 1: item["message"] for item in found}


PROGRAMS = {"events": EVENTS, "clients": CLIENTS, "options": of_each_backend()}


@pytest.mark.timeout(360)
@pytest.mark.parametrize("checker", [mypy, basedpyright])
@pytest.mark.parametrize("name", PROGRAMS)
def test_type_checkers_refuse_wrong_uses_and_no_others(
    tmp_path: Path, name: str, checker: Callable[[Path], dict[int, str]]
) -> None:
    text = HEAD + PROGRAMS[name]
    program = tmp_path / "program.py"
    program.write_text(text)
    refused = checker(program)
    wanted = {number: line for number, line in enumerate(text.split("\n"), 1) if "# refused" in line}
    accepted = [line for number, line in wanted.items() if number not in refused]
    assert accepted == [], "accepted"
    assert {number: why for number, why in refused.items() if number not in wanted} == {}, "refused without a reason"


def test_every_transport_is_in_the_programs() -> None:
    """Guards against a backend that this test does not check."""
    programs = "".join(PROGRAMS.values())
    kinds = [name for name in fairlane.__all__ if name.endswith("Transport")]
    assert [name for name in kinds if f"fairlane.{name}" not in programs] == []
