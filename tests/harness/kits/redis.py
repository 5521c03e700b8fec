"""The kits of Redis, as a single server and as a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fairlane.backends.stored import Call, Rows
from tests.harness.kits.base import EPOCH, Kit


class RedisKit(Kit):
    backend = "redis"
    variable = "FAIRLANE_TEST_REDIS_URL"

    def connect(self, queue: str) -> Any:
        import redis

        return redis.Redis.from_url(self.url(queue))

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.redis.wire import Calls, rows_of

        commands = Calls(queue)
        answers: list[Rows] = []
        with self.connect(queue) as client:
            for start in range(0, len(calls), 500):
                part = calls[start : start + 500]
                pipeline = client.pipeline(transaction=False)
                for call in part:
                    pipeline.execute_command(*commands.command(call))
                replies = pipeline.execute()
                answers += [rows_of(call.operation, reply) for call, reply in zip(part, replies, strict=True)]
        return answers

    def now(self, queue: str) -> datetime:
        with self.connect(queue) as client:
            seconds, micros = client.time()
        return EPOCH + timedelta(seconds=seconds, microseconds=micros)

    def leftovers(self, queue: str) -> dict[str, int]:
        size = {b"string": "strlen", b"hash": "hlen", b"zset": "zcard", b"list": "llen", b"set": "scard"}
        with self.connect(queue) as client:
            keys = list(client.scan_iter(match=f"{{{queue}}}:*", count=10_000))
            found = {
                key.decode(): int(getattr(client, size[client.type(key)])(key))
                for key in keys
                if not key.endswith(b":meta")  # belongs to the queue, not to a group
            }
            if client.hexists(f"{{{queue}}}:meta", "paused"):
                found["paused"] = 1
            return found


class RedisClusterKit(RedisKit):
    variable = "FAIRLANE_TEST_REDIS_CLUSTER_URL"

    def connect(self, queue: str) -> Any:
        """Return a client of the node that holds the queue: all keys of a queue are in one slot."""
        import redis

        host, _, port = self.url(queue).rpartition("@")[2].rpartition("/")[2].split(",")[0].partition(":")
        with redis.RedisCluster(host=host, port=int(port or 6379)) as cluster:
            node = cluster.get_node_from_key(f"{{{queue}}}:meta")
        return redis.Redis(host=node.host, port=node.port)
