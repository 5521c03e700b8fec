"""Choose a transport by URL or by environment variables."""

from __future__ import annotations

from typing import Any, overload

from fairlane import migrate as migrations
from fairlane.async_transport import AsyncTransport
from fairlane.backends import manifest_of
from fairlane.capabilities import Capabilities
from fairlane.codec import Codec
from fairlane.contract import DEFAULT_QUEUE
from fairlane.environ import resolve_url
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport
from fairlane.urls import scheme_of


@overload
def connect(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> Transport[Any]: ...
@overload
def connect(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec[T],
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> Transport[T]: ...
def connect(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec[T] | None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> Transport[T]:
    """Return a transport for the backend at a URL, or for the one that the environment variables choose.

    Args:
        url: the address of the backend; `docs/backends/` shows the forms. If it is None, environment variables choose
            the backend: `FAIRLANE_URL`, or `STM_TRANSPORT_BACKEND` and `FAIRLANE_<BACKEND>_URL`.
        queue: the name of the queue, `[a-z][a-z0-9_]{0,30}`.
        codec: encodes and decodes events; strict JSON by default.
        migrate: migrate the queue to the newest revision first. For embedded use and tests, where no DBA does it.
        startup_timeout: seconds to wait for a server that is not up yet.
        options: options of the backend; see `from_url` of its transport, such as `PostgresTransport.from_url`.

    Raises:
        FairlaneError: see `Transport.from_url`.
    """
    chosen = resolve_url(url)
    transport, _ = manifest_of(scheme_of(chosen)).transports()
    if migrate:
        migrations.upgrade(chosen, queue=queue, startup_timeout=startup_timeout)
    return transport.from_url(chosen, queue=queue, codec=codec, startup_timeout=startup_timeout, **options)


@overload
async def connect_async(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> AsyncTransport[Any]: ...
@overload
async def connect_async(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec[T],
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> AsyncTransport[T]: ...
async def connect_async(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec[T] | None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: object,
) -> AsyncTransport[T]:
    """Return an asyncio transport; arguments and errors as in `connect`."""
    chosen = resolve_url(url)
    _, transport = manifest_of(scheme_of(chosen)).transports()
    if migrate:
        from asyncio import to_thread

        await to_thread(migrations.upgrade, chosen, queue=queue, startup_timeout=startup_timeout)
    return await transport.from_url(chosen, queue=queue, codec=codec, startup_timeout=startup_timeout, **options)


def capabilities(url: str | None = None) -> Capabilities:
    """Return the capabilities of the backend at a URL, without connecting to it.

    Args:
        url: as for `connect`.

    Raises:
        ConfigurationError: no backend has the scheme of the URL, or no backend is chosen.
    """
    return manifest_of(scheme_of(resolve_url(url))).capabilities
