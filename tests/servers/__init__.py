"""Real servers for the tests, from ordinary package registries; see `python -m tests.servers --help`.

Standard library only, so that it runs before anything is installed. In a test:

    from tests.servers import postgres, redis
    with postgres.private() as server:      # or redis.private("--maxmemory", "8mb")
        server.url, server.port, server.pid, server.folder, server.log()
        server.restart()                    # same port, data and URL; restart(kill=True) crashes it first
        server.stop(); server.start()       # or server.kill()
"""

from __future__ import annotations

from tests.servers import elasticmq, mongoeco, pgbouncer, postgres, redis, redis_cluster, rqlite_process, sqld
from tests.servers.base import Server
from tests.servers.process import Program, ServerError
from tests.servers.tools import find_tool, install_tool

SERVERS: dict[str, type[Server]] = {
    server.name: server
    for server in (
        postgres.Postgres,
        pgbouncer.PgBouncer,
        redis.Redis,
        redis_cluster.RedisCluster,
        sqld.Sqld,
        rqlite_process.Rqlite,
        mongoeco.Mongoeco,
        elasticmq.ElasticMQ,
    )
}

# Started by default: the servers of all backends.
DEFAULT = ("postgres", "pgbouncer", "redis", "redis-cluster", "sqld", "rqlite", "elasticmq")

# Also started by default if the machine can run them; otherwise the tests of their backends are skipped.
OPTIONAL = ("mongoeco",)

TOOLS = ("luacheck", "sqlite3", "mermaid")

__all__ = ["DEFAULT", "OPTIONAL", "SERVERS", "TOOLS", "Program", "Server", "ServerError", "find_tool", "install_tool"]
