"""Where in a cluster a queue is: a program that follows it from node to node.

All keys of a queue hash to one slot, so a queue is on one primary at a time. A node that does not have it says
where it is (MOVED), or where part of it is while it moves (ASK, TRYAGAIN): nothing was carried out then, and the
request goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.crc import key_slot

from fairlane.backends.redis.address import Address, Node
from fairlane.backends.redis.connections import AsyncConnections, Connections, answer_of
from fairlane.backends.redis.errors import NotSent, code_of
from fairlane.backends.redis.streams import Reply
from fairlane.backends.redis.wire import Calls, pack
from fairlane.backends.stored import Call
from fairlane.errors import ConfigurationError
from fairlane.program import Program, Sleep, run, run_async

_ASKING = pack(("ASKING",))
_SLOTS = pack(("CLUSTER", "SLOTS"))
_PAUSE = 0.05
"""Seconds between two looks at a queue whose keys are moving."""


@dataclass(slots=True)
class Ask:
    """Send packed commands to one node; the answer is their replies."""

    node: Node
    packed: bytes
    count: int


class Route:
    """The way to the primary of a queue. One object serves all threads and tasks: it is only ever replaced as a whole.

    Attributes:
        primary: where the queue was last; None when it has to be looked for.
    """

    def __init__(self, key: bytes, nodes: Sequence[Node]) -> None:
        self._slot = key_slot(key)
        self._known = tuple(nodes)
        self.primary: Node | None = None

    @property
    def where(self) -> str | None:
        """The primary, for people."""
        return None if self.primary is None else str(self.primary)

    def delivered(self, packed: bytes, count: int, deadline: float) -> Program[Ask, list[Any], list[Any]]:
        """Send a request to the primary, and on to where it points.

        Args:
            packed: one or several commands, the first of which says where the queue is.
            count: how many replies come.
            deadline: as `time.monotonic` counts; until then a queue that moves is followed.

        Raises:
            NotSent: neither the primary nor another one could be connected to.
        """
        node, asking, searched = self.primary, False, False
        while True:
            if node is None:
                node, searched = (yield from self._found()), True
            try:
                replies = yield Ask(node, _ASKING + packed if asking else packed, count + asking)
            except NotSent:
                self._forget(node)
                if searched:
                    raise
                node, asking = None, False
                continue
            except (OSError, redis.exceptions.RedisError):
                self._forget(node)
                raise
            replies = replies[asking:]
            error = replies[0]
            if not isinstance(error, redis.exceptions.ResponseError) or time.monotonic() > deadline:
                return replies
            code = code_of(error)
            if code == "TRYAGAIN":
                yield Sleep(_PAUSE)
                node, asking = self.primary, False
            elif code in ("MOVED", "ASK"):
                node, asking = _target(error, node), code == "ASK"
                if not asking:
                    self._learn(node)
            else:
                return replies

    def _forget(self, node: Node) -> None:
        if self.primary == node:
            self.primary = None

    def _learn(self, node: Node) -> None:
        self.primary = node
        if node not in self._known:
            self._known = (*self._known, node)

    def _found(self) -> Program[Ask, list[Any], Node]:
        """Ask one node after the other where the queue is."""
        failure: BaseException | None = None
        for node in self._known:
            try:
                (reply,) = yield Ask(node, _SLOTS, 1)
            except NotSent as error:
                failure = error.__cause__
                continue
            except (OSError, redis.exceptions.RedisError) as error:
                failure = error
                continue
            if isinstance(reply, redis.exceptions.ResponseError):
                if code_of(reply) == "ERR":
                    raise ConfigurationError(f"redis at {node} is not part of a cluster: use a redis:// URL")
                raise reply
            ranges = list(_ranges(reply, node))
            self._known = tuple(dict.fromkeys((*self._known, *(each for _, nodes in ranges for each in nodes))))
            for slots, nodes in ranges:
                if self._slot in slots:
                    self.primary = nodes[0]
                    return nodes[0]
            failure = redis.exceptions.ResponseError("CLUSTERDOWN no node has the slot of this queue")
        # nothing of the request itself was sent, whatever became of the question
        raise NotSent from failure


def _ranges(reply: Any, asked: Node) -> Iterator[tuple[range, list[Node]]]:
    """Yield slots and their nodes, the primary first. A node without a host is where we have asked."""
    for first, last, *nodes in reply:
        yield range(first, last + 1), [Node((host or b"").decode() or asked.host, port) for host, port, *_ in nodes]


def _target(error: redis.exceptions.ResponseError, asked: Node) -> Node:
    """Return where a MOVED or ASK reply points: `MOVED 3999 127.0.0.1:6381`, without a host for the one asked."""
    host, _, port = str(error).rpartition(" ")[2].rpartition(":")
    return Node(host or asked.host, int(port))


class Cluster:
    """The nodes of a cluster, for blocking calls."""

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._address = address
        self._route = Route(calls.key, address.nodes)
        self._nodes: dict[Node, Connections] = {}

    @property
    def where(self) -> str | None:
        """The node that the queue is on, None if that is not known."""
        return self._route.where

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""

        def ask(one: Ask) -> list[Reply]:
            return self._node(one.node).send(one.packed, deadline, one.count)

        packed, count = self._calls.sent(request)
        return answer_of(self._calls, run(self._route.delivered(packed, count, deadline), ask))

    def _node(self, node: Node) -> Connections:
        found = self._nodes.get(node)
        if found is None:  # two threads may make one each; the one that is not kept has opened nothing yet
            found = self._nodes.setdefault(node, Connections(self._address, node))
        return found

    def close(self) -> None:
        """See `Connections.close`."""
        for connections in tuple(self._nodes.values()):
            connections.close()


class AsyncCluster:
    """The nodes of a cluster, for asyncio."""

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._address = address
        self._route = Route(calls.key, address.nodes)
        self._nodes: dict[Node, AsyncConnections] = {}

    @property
    def where(self) -> str | None:
        """The node that the queue is on, None if that is not known."""
        return self._route.where

    async def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""

        async def ask(one: Ask) -> list[Reply]:
            return await self._node(one.node).send(one.packed, deadline, one.count)

        packed, count = self._calls.sent(request)
        return answer_of(self._calls, await run_async(self._route.delivered(packed, count, deadline), ask))

    def _node(self, node: Node) -> AsyncConnections:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes.setdefault(node, AsyncConnections(self._address, node))
        return found

    async def close(self) -> None:
        """See `AsyncConnections.close`."""
        for connections in tuple(self._nodes.values()):
            await connections.close()
