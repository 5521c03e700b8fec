"""Describe a queue's schema in Postgres as text, so that a test can compare two databases."""

from __future__ import annotations

from typing import Any

# Each query returns lines. The bodies of functions are left out, since their template files are reviewed instead.
QUERIES = {
    "schema": """
        select format('owner %s, rights %s, comment %s', pg_get_userbyid(nspowner), acl.list,
            obj_description(oid, 'pg_namespace'))
        from pg_namespace, lateral rights(nspacl) as acl (list) where oid = $ns$
        """,
    "relations": """
        select format('%s %s, owner %s, rights %s, options %s, comment %s', relkind, relname, pg_get_userbyid(relowner),
            acl.list, coalesce(array_to_string(reloptions, ' '), '-'), coalesce(obj_description(oid, 'pg_class'), '-'))
        from pg_class, lateral rights(relacl) as acl (list) where relnamespace = $ns$ and relkind in ('r', 'v', 'S')
        """,
    "columns": """
        select format('%s %s. %s %s%s%s%s, comment %s', c.relname,
            row_number() over (partition by c.oid order by a.attnum), a.attname,  -- attnum counts dropped columns too
            format_type(a.atttypid, a.atttypmod), case when a.attnotnull then ' not null' end,
            case when l.collname not in ('default') then format(' collate %s', l.collname) end,
            ' default ' || pg_get_expr(d.adbin, d.adrelid), coalesce(col_description(c.oid, a.attnum), '-'))
        from pg_class as c join pg_attribute as a on a.attrelid = c.oid
        left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
        left join pg_collation as l on l.oid = a.attcollation
        where c.relnamespace = $ns$ and c.relkind in ('r', 'v') and a.attnum > 0 and not a.attisdropped
        """,
    "constraints": """
        select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
        where connamespace = $ns$ and contype <> 'n'
        """,  # since PostgreSQL 18 a `not null` is a constraint, too
    "indexes": "select indexdef from pg_indexes where schemaname = '$queue$'",
    "sequences": """
        select format('%s %s start %s increment %s cache %s cycle %s', sequencename, data_type, start_value,
            increment_by, cache_size, cycle)
        from pg_sequences where schemaname = '$queue$'
        """,
    "functions": """
        select format('%s(%s) returns %s, owner %s, rights %s, definer %s, volatile %s, set %s', proname,
            pg_get_function_arguments(oid), pg_get_function_result(oid), pg_get_userbyid(proowner), acl.list, prosecdef,
            provolatile, array_to_string(proconfig, ' '))
        from pg_proc, lateral rights(proacl) as acl (list) where pronamespace = $ns$
        """,
    "settings": "select format('%s = %s', name, value) from \"$queue$\".settings",
}

RIGHTS = """
    create function pg_temp.rights(p_acl aclitem[]) returns text language sql as $$
        -- the owner has all, and what all is depends on the server's version
        select coalesce(string_agg(distinct item::text, ' ' order by item::text), '-')
        from unnest(p_acl) as item, aclexplode(array[item]) as part where part.grantee <> part.grantor
    $$
    """


def catalogue(connection: Any, queue: str, roles: dict[str, str] | None = None) -> str:
    """Describe a queue. Placeholders replace the queue's name and the names of `roles`."""
    connection.execute(RIGHTS)
    found = connection.execute("select oid from pg_namespace where nspname = %s", (queue,)).fetchone()
    if found is None:
        return ""
    lines = []
    for title, query in QUERIES.items():
        text = query.replace("rights(", "pg_temp.rights(").replace("$ns$", str(found[0])).replace("$queue$", queue)
        lines.append(f"-- {title}")
        lines += sorted(row[0] for row in connection.execute(text))
    connection.execute("drop function pg_temp.rights")
    dump = "\n".join(lines) + "\n"
    for name, stands_for in {queue: "<queue>", **(roles or {})}.items():
        dump = dump.replace(name, stands_for)
    return dump
