"""A proxy between a transport and sqld: it counts requests, can use TLS, and can let requests fail."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

Answer = tuple[int, bytes]
Fault = Callable[["Request"], Answer | None]
"""A function that answers instead of the server. None breaks the connection."""


@dataclass
class Request:
    """One POST. Each call of `send` passes it on once."""

    body: dict[str, Any]
    headers: dict[str, str]
    target: tuple[str, int] = field(repr=False)

    @property
    def baton(self) -> str | None:
        """The baton of the stream that the request continues; None when it begins a new stream."""
        baton: str | None = self.body["baton"]
        return baton

    @property
    def statements(self) -> list[str]:
        """The SQL of the request. For a batch, the statements that begin and end the transaction are left out."""
        texts = []
        for request in self.body["requests"]:
            if request["type"] == "execute":
                texts.append(request["stmt"]["sql"])
            elif request["type"] == "batch":
                texts += [step["stmt"]["sql"] for step in request["batch"]["steps"][1:-2]]
        return texts

    def send(self) -> Answer:
        """Pass it on."""
        connection = http.client.HTTPConnection(*self.target, timeout=30)
        try:
            connection.request("POST", "/v2/pipeline", json.dumps(self.body), self.headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


# Faults


def sql_error(code: str, message: str) -> Fault:
    """Refuse a statement as the server would."""

    def fault(request: Request) -> Answer:
        error = {"type": "error", "error": {"message": f"SQLite error: {message}", "code": code}}
        rest = [{"type": "ok", "response": {"type": "close"}}] * (len(request.body["requests"]) - 1)
        return 200, json.dumps({"baton": request.baton, "base_url": None, "results": [error, *rest]}).encode()

    return fault


busy = sql_error("SQLITE_BUSY", "database is locked")
"""The server's answer while other clients write."""


def status(number: int) -> Fault:
    """Answer with an HTTP status, and do nothing."""
    return lambda request: (number, b"not now")


def refuse(request: Request) -> None:
    """Break the connection; the server does not get the request."""


def lose(request: Request) -> None:
    """Let the server carry out the request, and break the connection."""
    request.send()


def twice(request: Request) -> Answer:
    """Let the server carry out the request twice, and return the second answer."""
    request.send()
    request.body = {**request.body, "baton": None}
    return request.send()


def late(seconds: float) -> Fault:
    """Pass the request on after so many seconds, when the caller does not wait any more."""

    def fault(request: Request) -> Answer:
        time.sleep(seconds)
        request.body = {**request.body, "baton": None}
        return request.send()

    return fault


def slow(seconds: float) -> Fault:
    """Let the server carry out the request, and return the answer after so many seconds."""

    def fault(request: Request) -> Answer:
        answer = request.send()
        time.sleep(seconds)
        return answer

    return fault


def garbage(request: Request) -> Answer:
    """Let the server carry out the request, and return an answer that no server sends."""
    request.send()
    return 200, b'{"hello": "world"}'


class Relay:
    """A running proxy. Only requests that write can fail; requests that only read always pass."""

    def __init__(self, port: int, tls: tuple[Path, Path] | None = None) -> None:
        self.seen: list[Request] = []
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                kept = {name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}
                answer = relay._handle(Request(json.loads(text), kept, ("127.0.0.1", port)))
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer[0])
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

            def log_message(self, *_: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Print nothing: in these tests clients disconnect and TLS fails on purpose."""

            def finish_request(self, request: Any, address: Any) -> None:
                if tls is not None:
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(*tls)
                    request = context.wrap_socket(request, server_side=True)
                super().finish_request(request, address)

        self._server = Listener(("127.0.0.1", 0), Handler)
        self._scheme = "libsql+http" if tls is None else "libsql"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, fault: Fault, times: int = 1, *, skip: int = 0) -> None:
        """Let the next requests that write fail."""
        with self._lock:
            self._faults.extend([Request.send] * skip + [fault] * times)

    def clear(self) -> None:
        """Remove all faults that are still to come."""
        with self._lock:
            self._faults.clear()

    @property
    def pending(self) -> int:
        """The number of failures that are still to come."""
        return len(self._faults)

    def _handle(self, request: Request) -> Answer | None:
        if not request.statements:
            return request.send()  # this request only closes a stream
        with self._lock:
            self.seen.append(request)
            looks = request.statements[0].lstrip().startswith("select")
            fault = self._faults.popleft() if self._faults and not looks else Request.send
        return fault(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def open_socket() -> socket.socket:
    """A port that takes connections and never answers."""
    return socket.create_server(("127.0.0.1", 0))
