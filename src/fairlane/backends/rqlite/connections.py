"""Make the HTTP clients for rqlite. Making a client does not connect."""

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
"""The number of connections that are kept open. For asyncio it is also the maximum; more calls wait for a free one."""

SECONDS_KEPT = 60.0
"""A connection that was idle for longer is not used again, since a firewall may have dropped it."""


PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""TCP keepalive: idle seconds before the first probe, seconds between probes, and the number of probes."""


class _Adapter(requests.adapters.HTTPAdapter):
    """Switches on TCP keepalive. Idle connections have no time limit here, so the system must detect dead ones."""

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        options = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        options += [
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in PROBES.items()
            if hasattr(socket, name)  # some systems do not have all of them
        ]
        super().init_poolmanager(*arguments, socket_options=options, **keywords)


def make_session(address: Address) -> requests.Session:
    """Return a client for blocking code. Its pool gives every thread a connection."""
    session = requests.Session()
    session.trust_env = False  # no proxy of the environment, and no password from .netrc instead of the URL's
    session.verify = address.verify and (address.ca_file or True)
    adapter = _Adapter(pool_maxsize=CONNECTIONS, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


@dataclass(frozen=True, slots=True)
class Connections:
    """An asyncio client and a limit for its calls.

    Attributes:
        turns: one for each connection. A call that waits here has sent nothing, so its timeout says nothing about the
            node.
    """

    client: httpx.AsyncClient
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))

    async def close(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def make_client(address: Address) -> httpx.AsyncClient:
    """Return a client for asyncio. It belongs to the event loop that uses it first."""
    limits = httpx.Limits(
        max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=SECONDS_KEPT
    )
    return httpx.AsyncClient(verify=address.tls(), trust_env=False, limits=limits)
