"""Sockets: one listening thread per address, one thread per connection, HTTP/1.1 with keep-alive."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from .messages import VERSION, Answer, Request

Respond = Callable[[Request], Answer | None]  # None: close the connection without an answer


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers on one address, from its creation to `stop`. It holds the port until `release`.

    Its threads never delay the end of the process.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], respond: Respond, tls: ssl.SSLContext | None = None) -> None:
        self.respond = respond
        self.tls = tls
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)
        self._accepting = threading.Thread(target=self._accept, daemon=True, name=f"rqlite stand-in {self.port}")
        self._accepting.start()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def stop(self) -> None:
        """Act as if the process had died: no new connection is accepted, and open ones break.

        The port stays bound: clients still connect to it, and must not find the cluster of another test.
        """
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close() would not
        self._accepting.join()  # as long as it accepts, the port is in use, also after `release`
        # otherwise other sockets that allow it may be bound to the port too, since this one does not listen any more
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Give the port back."""
        self.server_close()

    def _accept(self) -> None:
        # serve_forever would check a flag a few times per second, as long as the tests run
        while True:
            try:
                connection, client = self.get_request()
            except OSError:
                return
            with self._guard:
                self._connections.add(connection)
            self.process_request(connection, client)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        # the handshake belongs to the connection's own thread: a silent client must not block the others
        with contextlib.suppress(OSError), self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have closed the connection. Anything else is a fault of the stand-in, so show it."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet
    server: Listener

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(length),
        )
        answer = self.server.respond(request)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in {"X-RQLITE-VERSION": VERSION, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = _answer  # noqa: N815
