"""The two executors of the SQS backend. They use the client of boto3 and, for asyncio, that of aiobotocore."""

from __future__ import annotations

import asyncio
import threading
import time
from math import inf
from typing import Any, Generic, Self, TypeVar

import boto3
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.config import Config

from fairlane.backends.base import Limit, translated
from fairlane.backends.shared import forks
from fairlane.backends.shared.loops import OwnerLoop, PerLoop
from fairlane.backends.shared.options import read_options
from fairlane.backends.sqs.address import Address, client_arguments, parse
from fairlane.backends.sqs.errors import RETRY_SECONDS, translate
from fairlane.backends.sqs.options import OPTIONS
from fairlane.backends.sqs.wire import Answer, AsyncClient, Client, Request
from fairlane.errors import ConfigurationError

ClientT = TypeVar("ClientT", Client, AsyncClient)

SHORTEST = 0.2
"""Minimum seconds for a request, also after the deadline."""


def make_client(address: Address, seconds: float | None = None, session: Any = None) -> Any:
    """Return a client of boto3 whose requests may take this many seconds. It connects when it is first used."""
    # not the default session: several threads may not use that one while it makes clients
    session = session or boto3.session.Session()
    return session.client("sqs", **client_arguments(address, Config, seconds or address.timeout))


def _left(request: Request, limit: Limit) -> float:
    """Return the seconds until the deadline of a request. The first call for a request sets the deadline."""
    now = time.monotonic()
    if request.ends is None:
        request.ends = limit.deadline(now)
    return max(SHORTEST, request.ends - now)


def _check(client: Client | AsyncClient) -> str:
    """Return the host of the application's client.

    Raises:
        ConfigurationError: it is not a client of SQS.
    """
    if not callable(getattr(client, "receive_message", None)):
        raise ConfigurationError(f"this is not a client of SQS: {type(client).__name__}")
    return str(client.meta.endpoint_url).partition("://")[2]


class _Executor(forks.ForkAware, Generic[ClientT]):
    """What both executors share."""

    def __init__(self, address: Address | None, client: ClientT | None, host: str) -> None:
        # a client of the application keeps to its own timeouts
        self.limit = Limit(inf if address is None else address.timeout)
        self._address = address
        self._given: ClientT | None = client
        self._translated = translated(lambda error: translate(error, host))
        if address is not None:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Connect to the address of a URL. Clients are made when they are needed."""
        address = parse(url, options)
        return cls(address, None, address.host)

    @classmethod
    def from_client(cls, client: ClientT, queue: str, **options: object) -> Self:
        """Use the application's client. It should not repeat requests by itself."""
        read_options("sqs", OPTIONS, None, options)
        return cls(None, client, _check(client))


class SqsExecutor(_Executor[Client]):
    """Sends requests with clients of boto3, which many threads may use.

    A client of boto3 has a fixed timeout for its requests. So there is one client for calls with the whole timeout,
    and others for calls that must end sooner, as at the start. Each of these has half the timeout of the one before.
    """

    def __init__(self, address: Address | None, client: Client | None, host: str) -> None:
        self._clients: dict[float, Any] = {}
        self._session: Any = None  # making the first client of a session takes 50 ms, each other client 3 ms
        self._lock = threading.Lock()
        super().__init__(address, client, host)

    def execute(self, request: Request) -> Answer:
        """Send one request and return its answer."""
        with self._translated:
            client = self._given if self._address is None else self._client(self._address, request)
            answer: Answer = getattr(client, request.operation)(**request.arguments)
            return answer

    def _client(self, address: Address, request: Request) -> Any:
        left = _left(request, self.limit)
        seconds = address.timeout - RETRY_SECONDS  # leaves time to repeat a request that fails quickly
        while seconds > left and seconds > SHORTEST:
            seconds /= 2
        if seconds not in self._clients:
            with self._lock:
                if seconds not in self._clients:
                    self._session = self._session or boto3.session.Session()
                    self._clients[seconds] = make_client(address, seconds, self._session)
        return self._clients[seconds]

    def after_fork_in_child(self) -> object:
        """Forget the parent's clients, and make a new lock; see `forks`."""
        left = self._clients, self._session
        self._clients, self._session, self._lock = {}, None, threading.Lock()
        return left

    def close(self) -> None:
        """Close the clients that this executor made."""
        while self._clients:
            self._clients.popitem()[1].close()


class AsyncSqsExecutor(_Executor[AsyncClient]):
    """Sends requests with clients of aiobotocore, one for each event loop. Many tasks may use it."""

    def __init__(self, address: Address | None, client: AsyncClient | None, host: str) -> None:
        self._owner = OwnerLoop("sqs", "a client of aiobotocore")
        self._own = PerLoop(self._opened, _closed)
        super().__init__(address, client, host)

    async def execute(self, request: Request) -> Answer:
        """Send one request and return its answer."""
        if self._address is None:
            self._owner.check()
        with self._translated:
            client = self._given if self._address is None else (await self._own.client()).client
            async with asyncio.timeout(None if self._address is None else _left(request, self.limit)):
                answer: Answer = await getattr(client, request.operation)(**request.arguments)
                return answer

    async def _opened(self) -> _Opened:
        assert self._address is not None
        arguments = client_arguments(self._address, AioConfig, self._address.timeout)
        context = AioSession().create_client("sqs", **arguments)
        return _Opened(context, await context.__aenter__())

    def after_fork_in_child(self) -> object:
        """Forget the parent's clients; see `forks`."""
        return self._own.forget()

    async def close(self) -> None:
        """Close the clients that this executor made."""
        await self._own.close()


class _Opened:
    """A client of aiobotocore, and the context manager that closes it."""

    def __init__(self, context: Any, client: Any) -> None:
        self.context = context
        self.client = client


async def _closed(opened: _Opened) -> None:
    await opened.context.__aexit__(None, None, None)
