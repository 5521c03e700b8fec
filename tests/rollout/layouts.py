"""Everything that a migration leaves in a database, as text: layouts, bodies of stored operations, rights, settings."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tests.backends.postgres.catalogue import catalogue
from tests.backends.redis.listing import listing
from tests.harness import Kit

BODIES = """
    select pg_get_functiondef(p.oid) || coalesce(obj_description(p.oid, 'pg_proc'), '') from pg_proc as p
    where p.pronamespace = %(queue)s::regnamespace and p.prokind = 'f'
    union all
    select c.relname || pg_get_viewdef(c.oid) from pg_class as c
    where c.relnamespace = %(queue)s::regnamespace and c.relkind = 'v'
    union all
    select pg_get_triggerdef(t.oid) from pg_trigger as t join pg_class as c on c.oid = t.tgrelid
    where c.relnamespace = %(queue)s::regnamespace
"""
CHOSEN = ("revision", "serves", "head_start")
"""The settings; what else is beside them changes with each message."""

STORED = "select type, name, sql from sqlite_master where name glob '{}_*' order by type, name"


def layout(kit: Kit, queue: str, roles: dict[str, str] | None = None) -> str:
    """Describe what belongs to a queue. The queue's name is replaced, and the names of roles."""
    text = _DESCRIBED[kit.backend](kit, queue, roles)
    return text.replace(queue, "<queue>")


def _postgres(kit: Any, queue: str, roles: dict[str, str] | None) -> str:
    with kit.connect(queue) as connection:
        found = catalogue(connection, queue, roles)
        bodies = sorted(row[0] for row in connection.execute(BODIES, {"queue": queue}))
    return "\n".join([found, *bodies])


def _sqlite(kit: Any, queue: str, _: object) -> str:
    with closing(kit.connect()) as connection:
        stored = connection.execute(STORED.format(queue)).fetchall()
        settings = connection.execute(f'select name, value from "{queue}_settings" order by name').fetchall()
    return _family(stored, settings)


def _by_http(kit: Any, queue: str, _: object) -> str:
    settings = f'select name, value from "{queue}_settings" order by name'
    stored, chosen = kit.send(queue, [(STORED.format(queue), {}), (settings, {})], reads=True)
    return _family([tuple(row.values()) for row in stored], [tuple(row.values()) for row in chosen])


def _family(stored: list[Any], settings: list[Any]) -> str:
    # SQLite joins what `alter table` adds to the text of a table, in its own manner
    rows = [f"{kind} {name}: {' '.join((text or '').split())}" for kind, name, text in stored]
    return "\n".join([*rows, *(f"{name} = {value}" for name, value in settings if name in CHOSEN)])


def _redis(kit: Any, queue: str, _: object) -> str:
    with kit.connect(queue) as client:
        library, _, keys = listing(client, queue).partition("# keys")
    return "\n".join([library, *(line for line in keys.splitlines() if line.startswith("meta "))])


def _mongo(kit: Any, queue: str, _: object) -> str:
    database = kit.database(queue)
    names = sorted(name for name in database.list_collection_names() if name.startswith(f"{queue}_"))
    indexes = {name: sorted(map(str, database[name].index_information().items())) for name in names}
    meta = database[f"{queue}_meta"].find_one({"_id": "queue"})
    chosen = [f"{name} = {meta[name]}" for name in CHOSEN]
    return "\n".join([*(f"{name} {found}" for name, found in indexes.items()), *chosen])


_DESCRIBED = {
    "postgres": _postgres,
    "sqlite": _sqlite,
    "libsql": _by_http,
    "rqlite": _by_http,
    "redis": _redis,
    "mongo": _mongo,
}
