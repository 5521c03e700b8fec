"""The two executors of the SQS backend: boto3's client, and for asyncio aiobotocore's."""

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
from fairlane.backends.shared.options import read_options
from fairlane.backends.sqs.address import Address, client_arguments, parse
from fairlane.backends.sqs.errors import translate
from fairlane.backends.sqs.options import OPTIONS
from fairlane.backends.sqs.wire import Answer, Request
from fairlane.errors import ConfigurationError


def make_client(address: Address) -> Any:
    """Return a client of boto3; it connects when it is first used."""
    # a session of our own: the default one may not be used by several threads while it makes clients
    return boto3.session.Session().client("sqs", **client_arguments(address, Config))


class _Executor(forks.ForkAware):
    """What both executors share: a client, ours or the application's, and where it leads."""

    def __init__(self, address: Address | None, client: Any, host: str) -> None:
        self._address = address
        self._client = client
        self._translated = translated(lambda error: translate(error, host))
        if address is not None:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Make a client of our own with the first request."""
        address = parse(url, options)
        return cls(address, None, address.host)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client; it should not repeat requests by itself."""
        read_options("sqs", OPTIONS, None, options)
        if not callable(getattr(client, "receive_message", None)):
            raise ConfigurationError(f"this is no client of SQS: {type(client).__name__}")
        return cls(None, client, str(client.meta.endpoint_url).partition("://")[2])

    def after_fork_in_child(self) -> object:
        """Begin anew, in a forked child."""
        left, self._client = self._client, None
        return left


class SqsExecutor(_Executor):
    """Carries requests with a client of boto3, which many threads may use."""

    def __init__(self, address: Address | None, client: Any, host: str) -> None:
        super().__init__(address, client, host)
        self._lock = threading.Lock()

    def execute(self, request: Request) -> Answer:
        """Carry out one request."""
        with self._translated:
            answer: Answer = getattr(self._connected(), request.operation)(**request.arguments)
            return answer

    def _connected(self) -> Any:
        if self._client is None:
            with self._lock:
                if self._client is None:
                    assert self._address is not None
                    self._client = make_client(self._address)
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

    def __init__(self, address: Address | None, client: Any, host: str) -> None:
        super().__init__(address, client, host)
        self._lock = asyncio.Lock()
        self._context: Any = None

    async def execute(self, request: Request) -> Answer:
        """Carry out one request."""
        with self._translated:
            client = self._client or await self._connected()
            answer: Answer = await getattr(client, request.operation)(**request.arguments)
            return answer

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is None:
                assert self._address is not None
                context = AioSession().create_client("sqs", **client_arguments(self._address, AioConfig))
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
