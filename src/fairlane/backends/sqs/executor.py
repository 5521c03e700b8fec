"""The SQS backend: the same programs, carried out by boto3's client or, for asyncio, by aiobotocore's.

Options: `max_connections`, the most that are kept open.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

import boto3
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.config import Config

from fairlane.backends.base import translated
from fairlane.backends.shared import forks
from fairlane.backends.shared.options import check_options
from fairlane.backends.sqs import address as addresses
from fairlane.backends.sqs.address import Address
from fairlane.backends.sqs.wire import Request, translate
from fairlane.errors import ConfigurationError, FairlaneError


def make_client(address: Address, connections: int = addresses.MAX_CONNECTIONS) -> Any:
    """Return a client of boto3; it connects when it is first used."""
    # a session of our own: the default one may not be used by several threads while it makes clients
    return boto3.session.Session().client("sqs", **addresses.client_arguments(address, Config, connections))


class _Executor(forks.ForkAware):
    """What both executors share: a client, ours or the application's, and where it leads."""

    def __init__(self, address: Address | None, client: Any, options: dict[str, Any]) -> None:
        check_options("sqs", options, ("max_connections",) if client is None else ())
        self._connections = addresses.check_connections(options)
        self._address = address
        self._client = client
        self._host = address.host if address else _host_of(client)
        if address is not None:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Make a client of our own with the first request."""
        return cls(addresses.parse(url), None, options)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client; it should not repeat requests by itself."""
        if not callable(getattr(client, "receive_message", None)):
            raise ConfigurationError(f"this is no client of SQS: {type(client).__name__}")
        return cls(None, client, options)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left, self._client = self._client, None
        return left

    def _translate(self, error: Exception) -> FairlaneError | None:
        return translate(error, self._host)


def _host_of(client: Any) -> str:
    return str(client.meta.endpoint_url).partition("://")[2]


class SqsExecutor(_Executor):
    """Carries requests with a client of boto3, which many threads may use."""

    def __init__(self, address: Address | None, client: Any, options: dict[str, Any]) -> None:
        super().__init__(address, client, options)
        self._lock = threading.Lock()

    def execute(self, request: Request) -> Any:
        """Carry out one request."""
        with translated(self._translate):
            return getattr(self._connected(), request.operation)(**request.arguments)

    def _connected(self) -> Any:
        if self._client is None:
            with self._lock:
                if self._client is None:
                    assert self._address is not None
                    self._client = make_client(self._address, self._connections)
        return self._client

    def after_fork_in_child(self) -> object:
        """Begin anew, with a lock that nobody holds."""
        self._lock = threading.Lock()
        return super().after_fork_in_child()

    def close(self) -> None:
        """Close the client if it is ours."""
        if self._address is not None and self._client is not None:
            self._client.close()


class AsyncSqsExecutor(_Executor):
    """Carries requests with a client of aiobotocore, which many tasks of one event loop may use."""

    def __init__(self, address: Address | None, client: Any, options: dict[str, Any]) -> None:
        super().__init__(address, client, options)
        self._lock = asyncio.Lock()
        self._context: Any = None

    async def execute(self, request: Request) -> Any:
        """Carry out one request."""
        with translated(self._translate):
            client = self._client or await self._connected()
            return await getattr(client, request.operation)(**request.arguments)

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is None:
                assert self._address is not None
                arguments = addresses.client_arguments(self._address, AioConfig, self._connections)
                context = AioSession().create_client("sqs", **arguments)
                self._client = await context.__aenter__()
                self._context = context
        return self._client

    def after_fork_in_child(self) -> object:
        """Begin anew, with a lock that nobody holds."""
        left = self._context, super().after_fork_in_child()
        self._context, self._lock = None, asyncio.Lock()
        return left

    async def close(self) -> None:
        """Close the client if it is ours."""
        if self._context is not None:
            await self._context.__aexit__(None, None, None)
