"""What the tests need to know of a backend besides its transports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from fairlane import migrate
from fairlane.backends import MANIFESTS
from fairlane.backends.stored import Call, Rows
from fairlane.capabilities import Capabilities

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kit:
    """One backend as the tests see it. Methods block, and each call opens its own connection."""

    backend: ClassVar[str]
    variable: ClassVar[str | None] = None
    """The environment variable with the URL of the server; None if the backend needs none."""

    folder: Path
    """The folder where a test may keep files."""

    server_url: str | None = None
    """The URL of the test's private server, instead of the one of the environment."""

    @property
    def caps(self) -> Capabilities:
        return MANIFESTS[self.backend].capabilities

    @property
    def missing(self) -> str | None:
        """Return why this backend cannot be tested here; None if it can."""
        if self.variable is None or os.environ.get(self.variable):
            return None
        return f"{self.variable} is not set: `make test` starts the servers, or `python -m tests.servers run -- pytest`"

    def url(self, queue: str) -> str:
        """The URL of the queue's database."""
        return self.server_url or os.environ[self.variable or ""]

    def options(self, twin: str) -> dict[str, Any]:
        """Return options of a transport that let many calls run at once."""
        return {}

    def connection(self, queue: str, twin: str) -> Any:
        """Connect as an application that publishes in its own transaction does with this twin; awaitable for
        asyncio."""
        raise NotImplementedError

    def create(self, queue: str, head_start: float | str | None = None) -> None:
        """Make a queue."""
        migrate.upgrade(self.url(queue), queue=queue, head_start=head_start)

    def drop(self, queue: str) -> None:
        """Remove a queue and all that is in it."""
        migrate.downgrade(self.url(queue), queue=queue, revision="base")

    batches: ClassVar[bool] = True
    """Whether `batch` works; if not, bulk work goes through a transport, one operation at a time."""

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        """Carry out many stored operations in order, in few round trips."""
        raise NotImplementedError

    def settle(self, queue: str) -> None:
        """Let the server process many changes now (statistics, vacuum), as it would by itself some time later."""

    def now(self, queue: str) -> datetime:
        """Return the time of the clock that leases run by."""
        raise NotImplementedError

    def leftovers(self, queue: str) -> dict[str, int]:
        """Return how many rows, keys or documents there are, by table, collection or key."""
        raise NotImplementedError
