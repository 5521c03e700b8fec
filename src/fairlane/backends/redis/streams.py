"""One connection to a server. The driver opens it, and then this module reads and writes its socket.

The driver handles TLS, users and databases. After that, hiredis packs requests and parses replies. The driver itself
takes longer, and it has no deadline for a whole call.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any, Self

import hiredis
import redis

from fairlane.backends.redis.address import Address, Node, make_async_connection, make_connection
from fairlane.backends.redis.errors import NotSent
from fairlane.backends.redis.wire import Reply
from fairlane.signals import raised_by_handler

_CHUNK = 65536


def _reader() -> hiredis.Reader:
    return hiredis.Reader(
        protocolError=redis.exceptions.InvalidResponse, replyError=redis.exceptions.ResponseError, notEnoughData=_reader
    )


def _parsed(reader: hiredis.Reader, replies: list[Reply], count: int) -> bool:
    """Add the replies that have arrived; return whether all are there."""
    while len(replies) < count:
        reply = reader.gets()
        if reply is _reader:  # means "not complete yet", since None and False are replies
            return False
        replies.append(reply)
    return True


def _has_input(sock: socket.socket) -> bool:
    """Return whether an idle socket has data or its end: then the server has closed the connection."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _InTime:
    """A socket whose calls end at a deadline. The driver limits only each single step of connecting."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.socket = sock
        self._deadline = deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self.socket, name)

    def recv_into(self, *arguments: Any) -> int:
        self.socket.settimeout(_left(self._deadline))
        return self.socket.recv_into(*arguments)

    def recv(self, *arguments: Any) -> bytes:
        self.socket.settimeout(_left(self._deadline))
        return self.socket.recv(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self.socket.settimeout(_left(self._deadline))
        self.socket.sendall(*arguments)


class Connection:
    """One blocking connection."""

    def __init__(self, address: Address, node: Node, deadline: float) -> None:
        opener: Any = make_connection(address, node, _left(deadline))
        plain = opener._connect
        opener._connect = lambda: _InTime(plain(), deadline)
        opener.connect()
        self._socket: socket.socket = opener._sock.socket
        opener._sock = None  # otherwise the driver would close the socket when this object is deleted
        self._reader = _reader()

    def exchange(self, packed: bytes, deadline: float, count: int) -> list[Reply]:
        """Send packed commands, and return `count` replies.

        Raises:
            NotSent: the commands could not be sent completely.
        """
        sock = self._socket
        try:
            sock.settimeout(_left(deadline))
            sock.sendall(packed)
        except OSError as error:
            if raised_by_handler(error):
                raise  # the whole request may have been sent, so sending it again could carry it out twice
            raise NotSent from error
        replies: list[Reply] = []
        while not _parsed(self._reader, replies, count):
            sock.settimeout(_left(deadline))
            data = sock.recv(_CHUNK)
            if not data:
                raise redis.exceptions.ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return replies

    def interrupt(self) -> None:
        """End an exchange, from any thread. The connection cannot be used afterwards."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection."""
        return _has_input(self._socket)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class AsyncConnection:
    """One connection of asyncio. It must be closed after a cancelled call, since an unread reply may be left."""

    def __init__(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams = stream, writer
        self._reader = _reader()

    @classmethod
    async def opened(cls, address: Address, node: Node, deadline: float) -> Self:
        """Open a connection. The caller limits the time for it."""
        opener: Any = make_async_connection(address, node, _left(deadline))
        try:
            await opener.connect()
        except BaseException:
            if opener._writer is not None:
                opener._writer.transport.abort()
            opener._reader = opener._writer = None
            raise
        stream, writer = opener._reader, opener._writer
        opener._reader = opener._writer = None  # otherwise the driver would close them
        assert stream is not None
        assert writer is not None
        return cls(stream, writer)

    async def exchange(self, packed: bytes, count: int) -> list[Reply]:
        """Send packed commands, and return `count` replies."""
        stream, writer = self._streams
        writer.write(packed)
        await writer.drain()
        replies: list[Reply] = []
        while not _parsed(self._reader, replies, count):
            data = await stream.read(_CHUNK)
            if not data:
                raise redis.exceptions.ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return replies

    def is_stale(self) -> bool:
        """Return whether the server has closed the connection, also if the loop has not noticed it yet."""
        stream, writer = self._streams
        return writer.is_closing() or stream.at_eof() or _has_input(writer.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection at once, without sending buffered data."""
        self._streams[1].transport.abort()
