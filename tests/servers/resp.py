"""The part of the Redis protocol that is needed to set up a cluster without a client library."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from io import BufferedRWPair

from tests.servers.process import ServerError


class Connection:
    def __init__(self, stream: BufferedRWPair) -> None:
        self._stream = stream

    def call(self, *words: str | int) -> str:
        """Send one command. Return the answer as text."""
        encoded = [str(word).encode() for word in words]
        self._stream.write(b"*%d\r\n" % len(encoded))
        self._stream.writelines(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
        self._stream.flush()
        kind, rest = (line := self._stream.readline())[:1], line[1:].strip()
        if kind == b"$":
            return self._stream.read(int(rest) + 2)[:-2].decode()
        if kind not in (b"+", b":"):
            raise ServerError(f"{' '.join(map(str, words))}: {line.decode(errors='replace').strip()}")
        return rest.decode()


@contextlib.contextmanager
def connect(port: int) -> Iterator[Connection]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, link.makefile("rwb") as stream:
        yield Connection(stream)
