"""The HTTP clients that talk to rqlite, made for an address. Making one connects to nothing."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Any

import httpx
import requests
import requests.adapters
from urllib3.connection import HTTPConnection

from fairlane.backends.rqlite.address import Address

CONNECTIONS = 64
"""How many are kept, and on the asyncio side how many there may be; further calls wait there for their turn."""

SECONDS_KEPT = 60.0
"""A connection that was idle for longer is not used again: something on the way may have dropped it."""


PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of idleness after which the system asks the other end, seconds between such questions, and how many."""


class _Adapter(requests.adapters.HTTPAdapter):
    """Keeps connections for good, so the system has to find out which of them are dead: a request would be lost."""

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        options += [
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in PROBES.items()
            if hasattr(socket, name)  # not on every system
        ]
        super().init_poolmanager(*arguments, socket_options=options, **keywords)


def make_session(address: Address) -> requests.Session:
    """Return a client for blocking code, whose pool gives every thread a connection."""
    session = requests.Session()
    session.trust_env = False  # no proxy between us and a database, no password from .netrc in place of the URL's
    session.verify = address.verify and (address.ca_file or True)
    adapter = _Adapter(pool_maxsize=CONNECTIONS, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


@dataclass(frozen=True, slots=True)
class Connections:
    """An asyncio client and who may use it.

    Attributes:
        turns: one for each connection. To wait here costs a call nothing of the time of its request, and says nothing
            about the node.
    """

    client: httpx.AsyncClient
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def make_client(address: Address) -> httpx.AsyncClient:
    """Return a client for asyncio; it belongs to the event loop that it is first used in."""
    limits = httpx.Limits(
        max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=SECONDS_KEPT
    )
    return httpx.AsyncClient(verify=address.tls(), trust_env=False, limits=limits)
