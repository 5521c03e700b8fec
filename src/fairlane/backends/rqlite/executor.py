"""The executors of the rqlite backend. They send one POST for each request, to the leader if it is known.

If a request or its answer is lost, the core sends the request again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self

import httpx
import requests

from fairlane.backends.rqlite.address import Address, locate
from fairlane.backends.rqlite.connections import Connections, make_client, make_session
from fairlane.backends.rqlite.errors import never_sent
from fairlane.backends.rqlite.wire import Answer, Wire
from fairlane.backends.shared import forks
from fairlane.backends.shared.http import Clock
from fairlane.backends.shared.loops import OwnerLoop, PerLoop
from fairlane.backends.shared.sent_twice import Batch
from fairlane.backends.stored import Call, Rows
from fairlane.errors import ConfigurationError, TransportClosed


class RqliteExecutor(forks.ForkAware):
    """Sends requests with a `requests.Session`. Any number of threads may use it."""

    def __init__(self, wire: Wire, session: requests.Session | None = None) -> None:
        self._wire = wire
        self._clock = Clock(wire.address.timeout)
        self.limit = self._clock.limit
        self._owned = session is None
        self._session = make_session(wire.address) if session is None else session
        if self._owned:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the cluster at a URL; `locate` documents URLs and options."""
        return cls(Wire(locate(url, options), queue))

    @classmethod
    def from_client(cls, client: object, queue: str, *, url: object = None, **options: object) -> Self:
        """Use the application's `requests.Session`, with its TLS settings, for the cluster at `url`."""
        if not isinstance(client, requests.Session):
            raise ConfigurationError(f"rqlite needs a requests.Session here, not {type(client).__name__}")
        return cls(Wire(_located(url, options), queue), client)

    def execute(self, call: Call) -> Rows:
        """Send one operation, and return its rows."""
        return self._wire.rows(call, self._post(call))

    def together(self, batch: Batch) -> list[Rows]:
        """Carry out several statements in one request, and return the rows of each."""
        return self._wire.rows_of_each(self._post(batch))

    def _post(self, request: Call | Batch) -> Answer:
        address = self._wire.address
        node, post = self._wire.nodes.current, self._wire.post(request)
        try:
            answer = self._session.post(
                node + post.path,
                data=post.body,
                headers=dict(post.headers),
                timeout=self._clock.parts_for(request, address.connect_timeout),
                allow_redirects=False,  # requests would send a GET without the password
            )
        except requests.RequestException as error:
            raise self._wire.broken(node, error, sent=not never_sent(error)) from error
        return Answer(node, answer.status_code, answer.headers, answer.content)

    def after_fork_in_child(self) -> object:
        """Make a session for the child; see `forks`."""
        left, self._session = self._session, make_session(self._wire.address)
        return left

    def close(self) -> None:
        """Close the connections, unless they belong to the application's client."""
        if self._owned:
            self._session.close()


class AsyncRqliteExecutor(forks.ForkAware):
    """Sends requests with an `httpx.AsyncClient`, one for each event loop."""

    def __init__(self, wire: Wire, client: httpx.AsyncClient | None = None) -> None:
        self._given = None if client is None else Connections(client)
        self._given_loop = OwnerLoop("rqlite", "an httpx.AsyncClient")
        self._own = PerLoop(self._open, Connections.close)
        self._closed = False
        self._wire = wire
        self._clock = Clock(wire.address.timeout)
        self.limit = self._clock.limit
        forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the cluster at a URL; `locate` documents URLs and options."""
        return cls(Wire(locate(url, options), queue))

    @classmethod
    def from_client(cls, client: object, queue: str, *, url: object = None, **options: object) -> Self:
        """Use the application's `httpx.AsyncClient`, with its TLS settings, for the cluster at `url`."""
        if not isinstance(client, httpx.AsyncClient):
            raise ConfigurationError(f"rqlite needs an httpx.AsyncClient here, not {type(client).__name__}")
        return cls(Wire(_located(url, options), queue), client)

    async def _open(self) -> Connections:
        return Connections(make_client(self._wire.address))

    async def _connections(self) -> Connections:
        if self._given is not None:
            self._given_loop.check()
            return self._given
        if self._closed:  # closed while a call was between two tries
            raise TransportClosed()
        return await self._own.client()

    async def execute(self, call: Call) -> Rows:
        """Send one operation, and return its rows."""
        return self._wire.rows(call, await self._post(call))

    async def _post(self, call: Call) -> Answer:
        connections = await self._connections()
        try:
            async with asyncio.timeout(self._clock.left(call)):
                await connections.turns.acquire()
        except TimeoutError:
            raise self._wire.no_free_connection() from None
        try:
            return await self._posted(call, connections.client)
        finally:
            connections.turns.release()

    async def _posted(self, call: Call, client: httpx.AsyncClient) -> Answer:
        left = self._clock.seconds_for(call)
        # the connect timeout ends first: then the error shows that nothing was sent
        limits = httpx.Timeout(left, connect=min(self._wire.address.connect_timeout, left / 3))
        node, post = self._wire.nodes.current, self._wire.post(call)
        try:
            async with asyncio.timeout(left):
                answer = await client.post(
                    node + post.path,
                    content=post.body,
                    headers=post.headers,
                    timeout=limits,
                    follow_redirects=False,
                )
        except TimeoutError as error:
            raise self._wire.broken(node, error, sent=True) from error
        except httpx.PoolTimeout:  # the application uses all connections of its client
            raise self._wire.no_free_connection() from None
        except httpx.RequestError as error:
            raise self._wire.broken(node, error, sent=not never_sent(error)) from error
        except RuntimeError as error:  # httpx raises it for a closed client
            if not client.is_closed:
                raise
            if self._given is None:
                raise TransportClosed() from error
            raise ConfigurationError("the application's httpx.AsyncClient is closed: keep it open") from error
        return Answer(node, answer.status_code, answer.headers, answer.content)

    def after_fork_in_child(self) -> object:
        """Forget the parent's clients; see `forks`."""
        return self._own.forget()

    async def close(self) -> None:
        """Close the connections, unless they belong to the application's client."""
        self._closed = True
        await self._own.close()


def _located(url: object, options: Mapping[str, object]) -> Address:
    if not isinstance(url, str):
        raise ConfigurationError("an HTTP client has no address of rqlite: also pass url='rqlite://host:4001'")
    return locate(url, options, own_client=False)
