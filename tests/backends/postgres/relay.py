"""A relay between client and server. When silent, it keeps every connection open and passes nothing on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit


class Relay:
    """Relays to the server at a URL. It also accepts new connections while it is silent."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._speaks = threading.Event()
        self._speaks.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        login = self._parts.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        return urlunsplit(self._parts._replace(netloc=f"{login}@{host}"))

    def fall_silent(self) -> None:
        self._speaks.clear()

    def speak(self) -> None:
        """Relay again; the server now gets what clients sent meanwhile."""
        self._speaks.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._parts.hostname or "", self._parts.port or 5432))
                self._sockets += client, server
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._speaks.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._speaks.set()
        for each in (self._listener, *self._sockets):
            each.close()


@contextlib.contextmanager
def relayed(url: str) -> Iterator[Relay]:
    relay = Relay(url)
    try:
        yield relay
    finally:
        relay.close()
