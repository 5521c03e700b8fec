"""A relay between client and server that breaks the connection at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

Moment = Literal["before", "after"]


class Proxy:
    """Relays to a server on 127.0.0.1. `break_next` makes it fail once, at a command that contains some bytes.

    `before`: the command never reaches the server. `after`: the server carries it out, and its answer is lost.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._watched: bytes | None = None
        self._moment: Moment | None = None
        self.seen = 0
        """How often the command has come by since `break_next`."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def break_next(self, command: bytes, moment: Moment) -> None:
        self._watched, self._moment, self.seen = command, moment, 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                muted = threading.Event()
                for target in (self._requests, self._replies):
                    threading.Thread(target=target, args=(client, server, muted), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                moment = self._look(data)
                if moment == "before":
                    break
                if moment == "after":
                    muted.set()
                server.sendall(data)
        _close(client, server)

    def _look(self, data: bytes) -> Moment | None:
        if self._watched is None or self._watched not in data:
            return None
        self.seen += 1
        moment, self._moment = self._moment, None
        return moment

    def _replies(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if muted.is_set():
                    break
                client.sendall(data)
        _close(client, server)

    def close(self) -> None:
        self._listener.close()


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
