"""The rqlite backend: a cluster of SQLite databases behind HTTP, every operation one POST to the leader.

Followers are asked for a redirect and never pass a request on: they may do so twice. What has got lost on the way is
sent again by `rqlite_wire.delivered`, which the core calls; the executors send one POST for each request they get.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Self

import httpx
import requests
import requests.adapters
import urllib3

from fairlane.backends.rqlite.address import Address, locate
from fairlane.backends.rqlite.wire import Batch, Refused, Wire, delivered
from fairlane.backends.shared import forks
from fairlane.backends.shared.sqlite_statements import SentTwiceCore
from fairlane.backends.stored import REVISION, Call, Operation, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, SchemaNotReady, TransportClosed
from fairlane.program import Program

CONNECTIONS = 64
"""How many are kept, and on the asyncio side how many there may be; further calls wait there for their turn."""


class RqliteCore(SentTwiceCore):
    """The stored operations of a queue in rqlite.

    A claim sent twice finds the lease that it has made, by its token. A publish finds its message by its dedup id, or
    by the id of the call when the message is finished already: the queue remembers the last 10,000. An extend sent
    twice extends twice. An ack or a nack that may have been applied is not sent again: its answer would be LeaseLost,
    and would look like somebody else's doing.
    """

    def call(self, operation: Operation, arguments: Mapping[str, Any] | None = None) -> Program[Call, Rows, Rows]:
        request = Call(operation, arguments or {})
        # asked once at start-up, where operations.start does the waiting; else with the first operation
        patience = 0.0 if operation is REVISION else None
        for _ in range(2):
            try:
                rows: Rows = yield from delivered(request, repeatable=operation.repeatable, patience=patience)
                return rows
            except Refused as refused:
                error = refused.error
            if operation is REVISION:
                break
            if (yield from self.revision()) is None:
                raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from error
            # perhaps it was made just now: what was refused has changed nothing, and may be asked once more
        raise error


def _make_session(address: Address) -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # no proxy between us and a database, no password from .netrc in place of the URL's
    session.verify = address.verify and (address.ca_file or True)
    adapter = requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class RqliteExecutor(forks.ForkAware):
    """Sends requests with a `requests.Session`, whose pool gives every thread a connection."""

    def __init__(self, session: requests.Session, wire: Wire, *, owned: bool) -> None:
        self._session = session
        self._wire = wire
        self._owned = owned
        if owned:
            forks.register(self)
        self._timeout = (wire.address.connect_timeout, wire.address.timeout)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Talk to the cluster at a URL; `rqlite_address.locate` says how URLs look and which options there are."""
        address = locate(url, options)
        return cls(_make_session(address), Wire(address, queue), owned=True)

    @classmethod
    def from_client(cls, client: Any, queue: str, *, url: str | None = None, **options: Any) -> Self:
        """Use a `requests.Session` of the application, with its TLS settings, for the cluster at `url`."""
        if not isinstance(client, requests.Session):
            raise ConfigurationError(f"rqlite takes a requests.Session here, not {type(client).__name__}")
        return cls(client, Wire(_located(url, options), queue), owned=False)

    def execute(self, request: Call | Batch) -> Any:
        """Send one request to the node that leads, as far as is known."""
        node, post = self._wire.nodes.current, self._wire.post(request)
        try:
            answer = self._session.post(
                node + post.path,
                data=post.body,
                headers=dict(post.headers),
                timeout=self._timeout,
                allow_redirects=False,  # it would become a GET, and lose its password
            )
        except requests.RequestException as error:
            raise self._wire.broken(node, error, sent=not _never_connected(error)) from error
        return self._wire.answer(request, node, answer.status_code, answer.headers, answer.content)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left, self._session = self._session, _make_session(self._wire.address)
        return left

    def close(self) -> None:
        """Close the connections, unless they are the application's."""
        if self._owned:
            self._session.close()


class AsyncRqliteExecutor(forks.ForkAware):
    """Sends requests with an `httpx.AsyncClient`, made by the first of them in the event loop that it runs in."""

    def __init__(self, client: httpx.AsyncClient | None, wire: Wire) -> None:
        self._given = client
        self._own: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._wire = wire
        address = wire.address
        self._timeout = httpx.Timeout(address.timeout, connect=address.connect_timeout, pool=None)
        forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Talk to the cluster at a URL; `rqlite_address.locate` says how URLs look and which options there are."""
        return cls(None, Wire(locate(url, options), queue))

    @classmethod
    def from_client(cls, client: Any, queue: str, *, url: str | None = None, **options: Any) -> Self:
        """Use an `httpx.AsyncClient` of the application, with its TLS settings, for the cluster at `url`."""
        if not isinstance(client, httpx.AsyncClient):
            raise ConfigurationError(f"rqlite takes an httpx.AsyncClient here, not {type(client).__name__}")
        return cls(client, Wire(_located(url, options), queue))

    def _client(self) -> httpx.AsyncClient:
        """Return the client for the running loop. One whose loop has ended goes with that loop's connections."""
        loop = asyncio.get_running_loop()
        if self._given is not None:
            return self._given
        if self._closed:  # under its callers: the next try of one of them
            raise TransportClosed()
        if self._own is None or self._loop is not loop:
            self._own, self._loop = _make_client(self._wire.address), loop
        return self._own

    async def execute(self, request: Call | Batch) -> Any:
        """Send one request to the node that leads, as far as is known."""
        node, post = self._wire.nodes.current, self._wire.post(request)
        client = self._client()
        try:
            answer = await client.post(
                node + post.path,
                content=post.body,
                headers=post.headers,
                timeout=self._timeout,
                follow_redirects=False,
            )
        except httpx.RequestError as error:
            # what failed while it was connecting, TLS included, has sent nothing yet
            never = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol)
            raise self._wire.broken(node, error, sent=not never) from error
        except RuntimeError as error:  # what httpx has for a client that is closed
            if not client.is_closed:
                raise
            if self._given is None:
                raise TransportClosed() from error
            raise ConfigurationError("the httpx.AsyncClient given to rqlite was closed: keep it open") from error
        return self._wire.answer(request, node, answer.status_code, answer.headers, answer.content)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left, self._own = self._own, None
        return left

    async def close(self) -> None:
        """Close the connections, unless they are the application's."""
        self._closed = True
        if self._own is not None and self._loop is asyncio.get_running_loop():
            await self._own.aclose()
        self._own = None


def _located(url: str | None, options: dict[str, Any]) -> Address:
    if url is None:
        raise ConfigurationError("an HTTP client does not know where rqlite is: give url='rqlite://host:4001' as well")
    return locate(url, options, own_client=False)


def _make_client(address: Address) -> httpx.AsyncClient:
    verify: ssl.SSLContext | bool = address.verify
    if address.verify and address.ca_file:
        verify = ssl.create_default_context(cafile=address.ca_file)
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=60.0)
    return httpx.AsyncClient(verify=verify, trust_env=False, limits=limits)


def _never_connected(error: requests.RequestException) -> bool:
    """Tell whether the request was certainly not sent: connecting failed. A broken TLS stream may be either."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if isinstance(reason, urllib3.exceptions.SSLError):
        return isinstance(reason.args[0] if reason.args else None, ssl.SSLCertVerificationError)
    return isinstance(reason, urllib3.exceptions.NewConnectionError)
