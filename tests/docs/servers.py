"""The servers of a page, each started for this page only, and the programs that talk to them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.commands import CHECKOUT
from tests.conftest import require_server
from tests.docs.addresses import SHOWN, Addresses
from tests.docs.reading import BadPage, Page
from tests.docs.running import write_programs
from tests.servers import SERVERS, Server, find_tool
from tests.servers import install as packages
from tests.servers.postgres import find_bin

DATABASE, DBA = "app", "dba"
"""The name of the database on Postgres in the documents, and the role of its DBA."""

Programs = dict[str, tuple[Path, dict[str, str], list[str]]]


@contextlib.contextmanager
def servers(page: Page, place: Path) -> Iterator[tuple[Addresses, dict[str, str]]]:
    """Start what a page needs. Return how to read its addresses, and the environment for its programs."""
    python = Path(sys.executable)
    programs: Programs = {
        "python": (python, {}, []),
        # from a checkout, as the documents say, although the page runs in another folder
        "alembic": (python, {}, ["-m", "alembic", "-c", str(CHECKOUT / "alembic.ini")]),
    }
    if sqlite3 := find_tool("sqlite3"):
        programs["sqlite3"] = (sqlite3.path, dict(sqlite3.env), [])
    env: dict[str, str] = {}
    real: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for name, *arguments in page.needs:
            if name not in SHOWN:
                raise BadPage(f"{page.name}: no test server is called {name!r}; there are {', '.join(SHOWN)}")
            server = _start(SHOWN[name].server, arguments, stack)
            real[name] = f"127.0.0.1:{server.port}"
            if name == "postgres":
                env |= _prepare_postgres(server)
                programs |= _postgres_programs()
            if name == "redis":
                programs |= _redis_programs(server)
        write_programs(place / "bin", programs)
        env["PATH"] = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        yield Addresses(real), env


def _start(name: str, arguments: list[str], stack: contextlib.ExitStack) -> Server:
    kind = SERVERS[name]
    if kind.find() is None:
        require_server(f"{kind.variable} cannot be started here: {kind.hint}")
    return stack.enter_context(kind.private(*arguments))


def _prepare_postgres(server: Server) -> dict[str, str]:
    """Make the database and its DBA. Everybody may log in without a password, since the documents show none."""
    hba = server.folder / "data" / "pg_hba.conf"
    hba.write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("select pg_reload_conf()")
        admin.execute(f"create role {DBA} login createrole createdb")
        admin.execute(f"create database {DATABASE} owner {DBA}")
    return {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGUSER": DBA,
        "PGDATABASE": DATABASE,
        "PSQLRC": os.devnull,
        "PGTZ": "UTC",
    }


def _postgres_programs() -> Programs:
    folder, root = find_bin(), packages.folder() / "postgres"
    assert folder is not None
    libraries = packages.library_path(root) if root in folder.parents else {}
    names = ("psql", "pg_dump", "pg_restore", "pg_basebackup", "createdb")
    return {name: (folder / name, dict(libraries), []) for name in names if (folder / name).exists()}


def _redis_programs(server: Server) -> Programs:
    """Return redis-cli with this server's port, and the server program, for pages that start another server."""
    folder = server.program.path.parent
    client = next(path for name in ("redis-cli", "valkey-cli") if (path := folder / name).exists())
    env = dict(server.program.env)
    return {"redis-cli": (client, env, ["-p", str(server.port)]), "redis-server": (server.program.path, env, [])}
