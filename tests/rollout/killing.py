"""Migrates in processes that kill themselves: `python -m tests.rollout.killing URL QUEUE`.

Each line that it reads is a revision and a number: that of the statement before which the migration is killed, 0 for
none. It answers with the exit code of the migration. Each migration is a fork of this process, so that imports are done
once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import alembic.command
import pymongo.monitoring
import redis
import sqlalchemy as sa

from fairlane import migrate
from fairlane.backends import manifest_of
from fairlane.backends.shared.sqlite_target import FamilyTarget

assert alembic.command  # imported here, since each fork needs it


class Killer:
    """Kills its own process before a statement."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, *_: object, **__: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def in_sql(kill: Killer) -> None:
    """Before each statement that writes, and before each commit."""

    def before(connection: object, cursor: object, statement: str, *_: object) -> None:
        if not statement.lower().startswith(("select", "pragma", "table")):
            kill()

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", before)
    sa.event.listen(sa.engine.Engine, "commit", kill)


def in_redis(kill: Killer) -> None:
    _before(redis.Redis, "execute_command", kill)


def in_family(kill: Killer) -> None:
    """Before each request, and before its answer arrives."""
    _before(FamilyTarget, "send", kill, also_after=True)


def in_mongo(kill: Killer) -> None:
    class Listener(pymongo.monitoring.CommandListener):
        def started(self, event: object) -> None:
            kill()

        def succeeded(self, event: object) -> None:
            pass

        def failed(self, event: object) -> None:
            pass

    pymongo.monitoring.register(Listener())


def _before(owner: type, name: str, kill: Killer, *, also_after: bool = False) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    def replaced(*arguments: Any, **named: Any) -> Any:
        kill()
        result = method(*arguments, **named)
        if also_after:
            kill()
        return result

    setattr(owner, name, replaced)


HOOKS = {
    "postgres": in_sql,
    "sqlite": in_sql,
    "redis": in_redis,
    "libsql": in_family,
    "rqlite": in_family,
    "mongo": in_mongo,
}


def main() -> None:
    url, queue = sys.argv[1:]
    backend = manifest_of(url.partition(":")[0])
    backend.loaded()
    for line in sys.stdin:
        revision, number = line.split()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                HOOKS[backend.name](Killer(int(number)))
                (migrate.upgrade if revision == "head" else migrate.downgrade)(url, queue=queue, revision=revision)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
