"""A proxy between client and server that breaks connections, delays them or goes silent. It knows no protocol.

with Proxy(server.port) as proxy:
    transport = fairlane.connect(url_with(proxy.port))
    proxy.silence()                     # connections stay open, nothing comes through any more
    proxy.break_next(b"claim", "after") # the request that holds these bytes is carried out, its answer is lost
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Literal, Self

Moment = Literal["before", "after"]
"""`before`: the request never reaches the server. `after`: the server carries it out, and its answer is lost."""

_LINGER = struct.pack("ii", 1, 0)


class Proxy:
    """Relays connections to a port of 127.0.0.1, from its creation to `close`."""

    def __init__(self, port: int) -> None:
        self.target = port
        """The port where new connections go; may be changed."""
        self.delay = 0.0
        """Seconds by which every packet of the server is held back."""
        self.accepted = 0
        """How many connections there have been."""
        self.seen = 0
        """How often the bytes of `break_next` have come since then."""
        self._watched: bytes | None = None
        self._moment: Moment | None = None
        self._silent = False
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name=f"proxy {self.port}").start()

    # The faults.

    def break_next(self, request: bytes, moment: Moment) -> None:
        """Break the connection of the next request that holds these bytes, once."""
        with self._lock:
            self._watched, self._moment, self.seen = request, moment, 0

    def silence(self) -> None:
        """Pass nothing on any more, in either direction. Connections stay open, and new ones are accepted."""
        self._silent = True
        self._open.clear()

    def resume(self) -> None:
        """Pass everything on again, also what came in the meantime."""
        self._silent = False
        self._open.set()

    def cut(self, *, reset: bool = False) -> None:
        """End all connections; `reset`: abruptly, as when the machine was restarted."""
        for pair in self._snapshot():
            pair.end(reset=reset)

    def half_close(self) -> None:
        """Tell all clients that nothing more will come, and go on reading from them."""
        for pair in self._snapshot():
            with contextlib.suppress(OSError):
                pair.client.shutdown(socket.SHUT_WR)

    # Start and end.

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._snapshot())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._silent = False
        self._open.set()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The relay.

    def _snapshot(self) -> list[_Pair]:
        with self._lock:
            return list(self._pairs)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pair = _Pair(client, server)
                with self._lock:
                    self._pairs.add(pair)
                for target in (self._requests, self._answers):
                    threading.Thread(target=target, args=(pair,), daemon=True).start()

    def _requests(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.client.recv(65536):
                self._open.wait()
                moment = self._look(data)
                if moment == "before":
                    break
                if moment == "after":
                    pair.muted = True
                pair.server.sendall(data)
        self._end(pair)

    def _answers(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.server.recv(65536):
                if pair.muted:
                    break
                if self.delay:
                    time.sleep(self.delay)
                self._open.wait()
                pair.client.sendall(data)
        self._end(pair)

    def _look(self, data: bytes) -> Moment | None:
        with self._lock:
            if self._watched is None or self._watched not in data:
                return None
            self.seen += 1
            moment, self._moment = self._moment, None
            return moment

    def _end(self, pair: _Pair) -> None:
        if not self._silent:
            pair.end()
        with self._lock:
            self._pairs.discard(pair)


class _Pair:
    """The two connections of one client."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.muted = False

    def end(self, *, reset: bool = False) -> None:
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
                # wakes the thread that reads, which close() would not
                each.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            each.close()
