"""Redis as a single server. `FAIRLANE_TEST_REDIS_URL` replaces it.

Nothing is written to disk, so a restarted server is empty. A test that restarts a server and needs its data again
starts it with `private(*keeps_data)`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.process import Program

OLDEST = 7  # functions


class Redis(Server):
    name: ClassVar[str] = "redis"
    variable: ClassVar[str] = "FAIRLANE_TEST_REDIS_URL"
    hint: ClassVar[str] = f"install Redis >= {OLDEST} (Debian: redis-server) or set FAIRLANE_TEST_REDIS_URL"
    keeps_data: ClassVar[tuple[str, ...]] = ("--appendonly", "yes", "--appendfsync", "always")
    """`everysec` answers before it writes while an earlier fsync is under way, so a killed server forgets answers."""

    @classmethod
    def find(cls) -> Program | None:
        on_path = which("redis-server", "valkey-server")
        if on_path and major(Program(on_path)) >= OLDEST:
            return Program(on_path)
        root = packages.folder() / "redis"
        unpacked = root / "usr/bin/redis-server"
        return Program(unpacked, packages.library_path(root)) if unpacked.exists() else None

    @classmethod
    def install(cls) -> None:
        if cls.find() is None:
            packages.unpack_debian("redis", ["redis-server"])
            cls.found()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def arguments(self) -> list[str]:
        return [
            *("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no"),
            *self.args,
        ]

    def is_ready(self) -> bool:
        return "Ready to accept connections" in self.log()


def major(program: Program) -> int:
    found = re.search(r"v=(\d+)", program.run("--version"))
    return int(found[1]) if found else 0


find = Redis.find
install = Redis.install
private = Redis.private
