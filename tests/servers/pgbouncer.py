"""PgBouncer before its own PostgreSQL. `FAIRLANE_TEST_PGBOUNCER_URL` replaces it.

One database under many names: `postgres` with transaction pooling and `session` with session pooling, each with 2
server connections; `strict`, like `postgres` but with another default isolation level; `direct`, with as many
connections as a test may want. Any other name is like `postgres`, but with a separate pool, so that parallel tests do
not use the connections of each other.
"""

from __future__ import annotations

import shutil
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.postgres import Postgres, reachable
from tests.servers.process import Program, unprivileged_user

MODES = {
    "postgres": "pool_mode=transaction pool_size=2",
    "*": "pool_mode=transaction pool_size=2",
    "session": "pool_mode=session pool_size=2",
    "strict": "pool_mode=transaction pool_size=2 connect_query='set default_transaction_isolation = serializable'",
    "direct": "pool_mode=session pool_size=100",
}

CONFIGURATION = """\
[databases]
{databases}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
max_client_conn = 500
query_wait_timeout = 120
"""


class PgBouncer(Server):
    name: ClassVar[str] = "pgbouncer"
    variable: ClassVar[str] = "FAIRLANE_TEST_PGBOUNCER_URL"
    hint: ClassVar[str] = (
        "install PgBouncer (Debian: pgbouncer) or set FAIRLANE_TEST_PGBOUNCER_URL to the URL of one whose databases "
        "are those of tests/servers/pgbouncer.py"
    )

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self.user = unprivileged_user()
        self.postgres = Postgres()

    @classmethod
    def find(cls) -> Program | None:
        if on_path := which("pgbouncer"):
            return Program(on_path)
        root = packages.folder() / "pgbouncer"
        unpacked = root / "usr/sbin/pgbouncer"
        return Program(unpacked, packages.library_path(root)) if unpacked.exists() else None

    @classmethod
    def install(cls) -> None:
        Postgres.install()
        if cls.find() is None:
            packages.unpack_debian("pgbouncer", ["pgbouncer"])
            cls.found()

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.postgres.password}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self.postgres.start()
        super().start()

    def prepare(self) -> None:
        self.program = reachable(self.program, self.user, self.folder, "pgbouncer")
        users = self.folder / "users"
        users.write_text(f'"postgres" "{self.postgres.password}"\n')
        if self.user:
            shutil.chown(users, self.user)

    def arguments(self) -> list[str]:
        place = f"host=127.0.0.1 port={self.postgres.port} dbname=postgres"
        databases = "\n".join(f"{name} = {place} {mode}" for name, mode in MODES.items())
        file = self.folder / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(databases=databases, port=self.port, folder=self.folder))
        if self.user:
            shutil.chown(file, self.user)
        return [str(file), *self.args]

    def is_ready(self) -> bool:
        return "process up: PgBouncer" in self.log()

    def close(self) -> None:
        super().close()
        self.postgres.close()


find = PgBouncer.find
install = PgBouncer.install
private = PgBouncer.private
