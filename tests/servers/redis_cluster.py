"""A Redis Cluster of three primaries without replicas. `FAIRLANE_TEST_REDIS_CLUSTER_URL` replaces it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from tests.servers import resp
from tests.servers.base import Server, free_port
from tests.servers.process import Program, ServerError
from tests.servers.redis import Redis

NODES = 3
SLOTS = 16_384
SECONDS_TO_AGREE = 60.0


class Node(Redis):
    """One Redis of the cluster."""

    name: ClassVar[str] = "redis-node"

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self._ports = (0, 0)

    @property
    def bus_port(self) -> int:
        """Return the port for messages between nodes. The default is `port` + 10,000, which may be taken."""
        if self._ports[0] != self.port:
            self._ports = (self.port, free_port())
        return self._ports[1]

    def arguments(self) -> list[str]:
        cluster = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
        return [*super().arguments(), *cluster, "--cluster-port", str(self.bus_port)]


class RedisCluster(Server):
    name: ClassVar[str] = "redis-cluster"
    variable: ClassVar[str] = "FAIRLANE_TEST_REDIS_CLUSTER_URL"
    hint: ClassVar[str] = Redis.hint.replace("_REDIS_", "_REDIS_CLUSTER_")
    keeps_data: ClassVar[tuple[str, ...]] = Redis.keeps_data

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self.nodes = [Node(*args) for _ in range(NODES)]
        self._joined = False

    @classmethod
    def find(cls) -> Program | None:
        return Redis.find()

    @classmethod
    def install(cls) -> None:
        Redis.install()

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.port}"

    def start(self) -> None:
        try:
            for node in self.nodes:
                node.start()
            self.port = self.nodes[0].port
            if not self._joined:
                self._join()
            wait_until(self._agrees, f"{self.name}: the nodes did not agree in time")
            self._joined = True
        except BaseException:
            if not self._joined:
                self.close()
            raise

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self._joined = False

    @property
    def running(self) -> bool:
        return all(node.running for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        return [pid for node in self.nodes for pid in node.pids]

    def log(self) -> str:
        return "\n".join(node.log() for node in self.nodes)

    def _join(self) -> None:
        """Give each node its part of the slots, then make the nodes known to each other."""
        bounds = [SLOTS * number // NODES for number in range(NODES + 1)]
        for number, node in enumerate(self.nodes):
            with resp.connect(node.port) as connection:
                connection.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                connection.call("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
        with resp.connect(self.nodes[0].port) as connection:
            for node in self.nodes[1:]:
                connection.call("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)

    def _agrees(self) -> bool:
        for node in self.nodes:
            with resp.connect(node.port) as connection:
                info = connection.call("CLUSTER", "INFO")
            if "cluster_state:ok" not in info or f"cluster_known_nodes:{NODES}" not in info:
                return False
        return True


def wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_AGREE
    while not is_so():
        if time.monotonic() > deadline:
            raise ServerError(complaint)
        time.sleep(0.05)


find = RedisCluster.find
install = RedisCluster.install
private = RedisCluster.private
