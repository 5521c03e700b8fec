"""Find the node of a cluster that has a queue, with a program that follows the queue from node to node.

All keys of a queue hash to one slot, so a queue is on one primary at a time. Another node refuses a request and names
the right node (MOVED). While the slot moves, it names the node that may have the keys (ASK), or none (TRYAGAIN). Then
nothing was carried out, and the request is sent to the right node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import redis
from redis.crc import key_slot

from fairlane.backends.redis.address import Address, Node
from fairlane.backends.redis.connections import AsyncConnections, Connections, answer_of
from fairlane.backends.redis.errors import NotSent, code_of
from fairlane.backends.redis.wire import Calls, Reply, pack
from fairlane.backends.stored import Call
from fairlane.errors import ConfigurationError
from fairlane.program import Program, Sleep, run, run_async

ConnectionsT = TypeVar("ConnectionsT", Connections, AsyncConnections)

_ASKING = pack(("ASKING",))
_SLOTS = pack(("CLUSTER", "SLOTS"))
_PAUSE = 0.05
"""Seconds between two requests for a queue whose slot is moving."""


@dataclass(slots=True)
class Ask:
    """Send packed commands to one node; the answer is their replies.

    Attributes:
        share: how many nodes have to share the time that is left, this one included.
    """

    node: Node
    packed: bytes
    count: int
    share: int = 1

    def ends(self, deadline: float) -> float:
        """Return when this node must have answered, if all of it must end at the deadline."""
        now = time.monotonic()
        return now + (deadline - now) / self.share


class Route:
    """The route to the primary of a queue. All threads and tasks share one object; its values are only replaced whole.

    Attributes:
        primary: the last known primary of the queue; None if it must be searched.
    """

    def __init__(self, key: bytes, nodes: Sequence[Node]) -> None:
        self._slot = key_slot(key)
        self._known = tuple(nodes)
        self.primary: Node | None = None

    @property
    def where(self) -> str | None:
        """The primary as text for messages; None if it is not known."""
        return None if self.primary is None else str(self.primary)

    def delivered(self, packed: bytes, count: int, deadline: float) -> Program[Ask, list[Reply], list[Reply]]:
        """Send a request to the primary, and then to the node that a reply names.

        Args:
            packed: one or several commands. The first one has the keys of the queue.
            count: the number of replies.
            deadline: by time.monotonic(). A queue that moves is followed until then.

        Raises:
            NotSent: no connection to the primary or to another node was possible.
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
                node, asking = target(error, node), code == "ASK"
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

    def _ask_last(self, node: Node) -> None:
        self._known = (*(each for each in self._known if each != node), node)

    def _found(self) -> Program[Ask, list[Reply], Node]:
        """Ask the known nodes for the primary of the queue, one after the other. Each gets its share of the time."""
        failure: BaseException | None = None
        known = self._known
        for number, node in enumerate(known):
            try:
                (reply,) = yield Ask(node, _SLOTS, 1, share=len(known) - number)
            except NotSent as error:
                failure = error.__cause__
                self._ask_last(node)
                continue
            except (OSError, redis.exceptions.RedisError) as error:
                failure = error
                self._ask_last(node)
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
        # only CLUSTER SLOTS was sent, and nothing of the request itself
        raise NotSent from failure


def _ranges(reply: Reply, asked: Node) -> Iterator[tuple[range, list[Node]]]:
    """Yield ranges of slots and their nodes, the primary first. A node without a host is the asked node."""
    for first, last, *nodes in reply:
        yield range(first, last + 1), [Node((host or b"").decode() or asked.host, port) for host, port, *_ in nodes]


def target(error: redis.exceptions.ResponseError, asked: Node) -> Node:
    """Return the node of a reply like `MOVED 3999 127.0.0.1:6381` or ASK. Without a host it is the asked node."""
    host, _, port = str(error).rpartition(" ")[2].rpartition(":")
    return Node(host or asked.host, int(port))


class _Cluster(Generic[ConnectionsT]):
    """The nodes of a cluster, each with its connections."""

    _kind: Callable[[Address, Node], ConnectionsT]

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._address = address
        self._route = Route(calls.key, address.nodes)
        self._nodes: dict[Node, ConnectionsT] = {}

    @property
    def where(self) -> str | None:
        """The node that has the queue, or None if it is not known."""
        return self._route.where

    def _node(self, node: Node) -> ConnectionsT:
        found = self._nodes.get(node)
        if found is None:  # two threads may make one each; the one that is not kept has opened nothing yet
            found = self._nodes.setdefault(node, self._kind(self._address, node))
        return found


class Cluster(_Cluster[Connections]):
    """The nodes of a cluster, for blocking calls."""

    _kind = Connections

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""

        def ask(one: Ask) -> list[Reply]:
            return self._node(one.node).send(one.packed, one.ends(deadline), one.count)

        packed, count = self._calls.sent(request)
        return answer_of(self._calls, run(self._route.delivered(packed, count, deadline), ask))

    def close(self) -> None:
        """See `Connections.close`."""
        for connections in tuple(self._nodes.values()):
            connections.close()


class AsyncCluster(_Cluster[AsyncConnections]):
    """The nodes of a cluster, for asyncio."""

    _kind = AsyncConnections

    async def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""

        async def ask(one: Ask) -> list[Reply]:
            return await self._node(one.node).send(one.packed, one.ends(deadline), one.count)

        packed, count = self._calls.sent(request)
        return answer_of(self._calls, await run_async(self._route.delivered(packed, count, deadline), ask))

    async def close(self) -> None:
        """See `AsyncConnections.close`."""
        for connections in tuple(self._nodes.values()):
            await connections.close()
