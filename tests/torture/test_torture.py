"""A short run of torture on each backend; `make torture` runs for hours."""

from __future__ import annotations

import os

import pytest

from tests.conftest import require_server
from tests.servers import SERVERS
from tests.torture.run import SERVER_OF, run

SECONDS = float(os.environ.get("FAIRLANE_TORTURE_SECONDS", "20"))


@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis", "libsql", "rqlite", "mongo"])
def test_nothing_is_lost_doubled_or_out_of_order_under_faults(backend: str) -> None:
    """Guards against problems that no other test shows: faults of several kinds at once, with many clients."""
    if backend in SERVER_OF:
        kind = SERVERS[SERVER_OF[backend]]
        require_server(None if kind.find() else f"{kind.variable}: this machine has no program for {backend}")
    verdict = run(backend, SECONDS, seed=20)
    assert verdict.wrong == [], str(verdict)
    assert verdict.delivered > (10 if backend == "mongo" else 50), str(verdict)  # an emulator, which is slow
