"""Choose a transport by URL or by the environment."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlane import backends
from fairlane import migrate as migrations
from fairlane.codec import Codec
from fairlane.contract import DEFAULT_QUEUE
from fairlane.environ import resolve_url
from fairlane.facade import STARTUP_TIMEOUT, AsyncFacade, SyncFacade
from fairlane.transports import ASYNC, SYNC
from fairlane.urls import scheme_of


def connect(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec | None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: Any,
) -> SyncFacade:
    """Return a transport for the backend at a URL, or for the one that the environment names.

    Args:
        url: see the README for the forms; `resolve_url` says what counts when it is None.
        queue: the namespace, `[a-z][a-z0-9_]{0,30}`.
        codec: encodes and decodes events; strict JSON unless given.
        migrate: bring the queue's schema up to date first; for embedded use and tests, where no DBA does it.
        startup_timeout: seconds to wait for a server that is not up yet.
        options: what the backend's documentation lists.

    Raises:
        FairlaneError: see `SyncFacade.from_url`.
    """
    chosen = resolve_url(url)
    transport = SYNC[backends.name_for(scheme_of(chosen))]
    if migrate:
        migrations.upgrade(chosen, queue=queue, startup_timeout=startup_timeout)
    return transport.from_url(chosen, queue=queue, codec=codec, startup_timeout=startup_timeout, **options)


async def connect_async(
    url: str | None = None,
    queue: str = DEFAULT_QUEUE,
    *,
    codec: Codec | None = None,
    migrate: bool = False,
    startup_timeout: float = STARTUP_TIMEOUT,
    **options: Any,
) -> AsyncFacade:
    """Return an asyncio transport; arguments and errors as in `connect`."""
    chosen = resolve_url(url)
    transport = ASYNC[backends.name_for(scheme_of(chosen))]
    if migrate:
        await asyncio.to_thread(migrations.upgrade, chosen, queue=queue, startup_timeout=startup_timeout)
    return await transport.from_url(chosen, queue=queue, codec=codec, startup_timeout=startup_timeout, **options)
