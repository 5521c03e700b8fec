"""A minimal client for all requests to rqlite, for tests of the stand-in and for checks without a transport."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]  # names in lower case
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def results(self) -> list[Any]:
        found: list[Any] = self.json["results"]
        return found

    @property
    def values(self) -> list[Any]:
        """Return the rows of the first result."""
        found: list[Any] = self.results[0].get("values", [])
        return found


class Probe:
    """Sends requests to one node, each over a new connection. Flags are given as `True`: transaction=True."""

    def __init__(self, url: str, auth: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.host = urlsplit(url).netloc
        self.tls = tls
        self.headers = {"Content-Type": "application/json"}
        if auth is not None:
            self.headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"

    def execute(self, *statements: Any, **params: Any) -> Reply:
        return self.post("/db/execute", list(statements), **params)

    def query(self, *statements: Any, **params: Any) -> Reply:
        return self.post("/db/query", list(statements), **params)

    def request(self, *statements: Any, **params: Any) -> Reply:
        return self.post("/db/request", list(statements), **params)

    def post(self, path: str, body: Any, **params: Any) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, raw, **params)

    def get(self, path: str, **params: Any) -> Reply:
        return self.send("GET", path, None, **params)

    def send(self, method: str, path: str, body: bytes | None, **params: Any) -> Reply:
        """
        Raises:
            OSError, http.client.HTTPException: there was no answer.
        """
        query = "&".join(name if value is True else urlencode({name: value}) for name, value in params.items())
        if self.tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, timeout=10, context=self.tls
            )
        else:
            connection = http.client.HTTPConnection(self.host, timeout=10)
        try:
            connection.request(method, f"{path}?{query}" if query else path, body, self.headers)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read().decode())
        finally:
            connection.close()
