"""The connection on which the server wakes a transport. It waits in BLPOP; the server serves who waits longest."""

from __future__ import annotations

import time

import redis

from fairlane.backends.redis.address import Address, Node
from fairlane.backends.redis.cluster import target
from fairlane.backends.redis.errors import NotSent, code_of
from fairlane.backends.redis.streams import Connection
from fairlane.backends.redis.wire import Reply, keys_of, pack
from fairlane.backends.shared.listening import CannotListen

ANSWER_TIMEOUT = 5.0
"""Seconds that the server may take for an answer, beyond the time for which BLPOP waits."""

HOPS = 5
"""The number of nodes of a cluster that are asked for the queue."""

WAKE = ":wake"
"""The end of the name of the list; see `lua/keys.lua.j2`."""


class Listener:
    """One connection; see `listening.Connection`."""

    name = "announced"  # the list is the same for all transports

    def __init__(self, address: Address, queue: str) -> None:
        (self._list,) = (key.encode() for key in keys_of(queue) if key.endswith(WAKE))
        self._address = address
        self._connection = self._to(address.nodes[0])

    @classmethod
    def opened(cls, address: Address, queue: str) -> Listener:
        """Connect to the server, or to the node of a cluster that has the queue.

        Raises:
            CannotListen: the user may not wait.
        """
        made = cls(address, queue)
        try:
            made._find()
        except BaseException:
            made.close()
            raise
        return made

    def _to(self, node: Node) -> Connection:
        try:
            return Connection(self._address, node, time.monotonic() + ANSWER_TIMEOUT)
        except redis.exceptions.RedisError as error:
            raise ConnectionError(str(error)) from error

    def _find(self) -> None:
        for _ in range(HOPS):
            reply = self._exchange(("LLEN", self._list), 0.0)
            if not isinstance(reply, redis.exceptions.ResponseError):
                return
            if code_of(reply) != "MOVED":
                raise ConnectionError(str(reply))
            self._connection.close()
            self._connection = self._to(target(reply, self._address.nodes[0]))
        raise ConnectionError("the queue moves from node to node")

    def _exchange(self, command: tuple[bytes | str, ...], seconds: float) -> Reply:
        ends = time.monotonic() + seconds + ANSWER_TIMEOUT
        try:
            (reply,) = self._connection.exchange(pack(command), ends, 1)
        except (NotSent, redis.exceptions.RedisError) as error:
            raise ConnectionError(str(error)) from error
        if isinstance(reply, redis.exceptions.ResponseError) and code_of(reply) == "NOPERM":
            raise CannotListen(f"the user may not run {command[0]!s}, which is needed for wake-ups")
        return reply

    def hear(self, seconds: float) -> list[int]:
        """See `listening.Connection`."""
        reply = self._exchange(("BLPOP", self._list, f"{seconds:.3f}"), seconds)
        if reply is None:
            return []
        if isinstance(reply, redis.exceptions.ResponseError):
            raise ConnectionError(str(reply))
        return [int(reply[1]) if reply[1].isdigit() else 0]

    def check(self) -> None:
        """Do nothing: the end of a BLPOP is an answer."""

    def pass_on(self, floor: int) -> None:
        """See `listening.Connection`."""
        self._exchange(("LPUSH", self._list, str(floor)), 0.0)

    def interrupt(self) -> None:
        """See `listening.Connection`."""
        self._connection.interrupt()

    def close(self) -> None:
        """See `listening.Connection`."""
        self._connection.close()
