"""Fixtures that run a test once for each backend and twin. See `tests/harness`.

    pytest --backends sqlite,postgres     only these
    FAIRLANE_TEST_REQUIRE_SERVERS=1       a missing server is a failure, not a skip

Markers:
    promise(n, …)       the numbered promises of the contract that the test guards
    backends(name, …)   only for these backends
    needs(field, …)     only where `fairlane.capabilities` says yes; elsewhere skipped as declared
    lacks(field, …)     only where `fairlane.capabilities` says no
    twins(name)         only for this twin
    cluster             also on a Redis cluster
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import KITS, Kit, Queue, Queues
from tests.servers import DEFAULT, SERVERS, Server

# their assertions are as detailed as in a test
pytest.register_assert_rewrite("tests.harness.scene", "tests.harness.http_backends", "tests.backends.shared.silence")

MARKERS = (
    "promise(number, ...): the numbered promises of the contract that the test guards",
    "backends(name, ...): only for these backends",
    "needs(field, ...): only for backends that have these capabilities",
    "lacks(field, ...): only for backends that lack these capabilities",
    "twins(name): only for this twin, sync or async",
    "cluster: also on a Redis cluster",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backends", metavar="NAMES", help=f"only these backends, of {','.join(KITS)}")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize each test that works on a queue with its backends and twins."""
    if "arm" not in metafunc.fixturenames:
        return
    arms = [(name, twin) for name in _backends(metafunc) for twin in _twins(metafunc)]
    metafunc.parametrize("arm", arms, ids=[f"{name}-{twin}" for name, twin in arms], indirect=True, scope="function")


def _backends(metafunc: pytest.Metafunc) -> list[str]:
    chosen = metafunc.config.getoption("--backends")
    names = chosen.split(",") if chosen else list(KITS)
    if unknown := sorted(set(names) - set(KITS)):
        raise pytest.UsageError(f"--backends: unknown {', '.join(unknown)}; there are {', '.join(KITS)}")
    only = [name for mark in metafunc.definition.iter_markers("backends") for name in mark.args]
    if only:
        return [name for name in names if name in only]
    on_cluster = metafunc.definition.get_closest_marker("cluster") is not None
    return [name for name in names if name != "redis-cluster" or on_cluster]


def _twins(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    mark = metafunc.definition.get_closest_marker("twins")
    return mark.args if mark else ("sync", "async")


@pytest.fixture
def arm(request: pytest.FixtureRequest) -> tuple[Kit, str]:
    """The backend and the twin of this run of the test."""
    name, twin = request.param
    kit = KITS[name]()
    for mark in request.node.iter_markers("needs"):
        if lacking := [field for field in mark.args if not getattr(kit.caps, field)]:
            pytest.skip(f"declared: {name} does not have {', '.join(lacking)}")
    for mark in request.node.iter_markers("lacks"):
        if having := [field for field in mark.args if getattr(kit.caps, field)]:
            pytest.skip(f"declared: {name} has {', '.join(having)}")
    require_server(kit.missing)
    return kit, twin


def require_server(missing: str | None) -> None:
    """Skip a test whose server is missing, or fail it where servers are required and `make test` starts this one."""
    if missing is None:
        return
    optional = [kind.variable for name, kind in SERVERS.items() if name not in DEFAULT]
    if os.environ.get("FAIRLANE_TEST_REQUIRE_SERVERS") and not missing.startswith(tuple(optional)):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for database files: in memory if the system has such a folder, since disks are slow to sync."""
    fast = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="fairlane-", dir=fast if os.access(fast, os.W_OK) else None, ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


@pytest.fixture
async def queues(arm: tuple[Kit, str], folder: Path) -> AsyncIterator[Queues]:
    """Makes queues for this test, and removes them afterwards."""
    kit, twin = arm
    made = Queues(kit, twin, folder)  # type: ignore[arg-type]
    yield made
    await made.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[..., Server]]:
    """Starts servers for the tests of one module only, each once: `servers("redis", "--appendonly", "yes")`."""
    with contextlib.ExitStack() as stack:
        started: dict[tuple[str, ...], Server] = {}

        def private(name: str, *args: str) -> Server:
            kind = SERVERS[name]
            if kind.find() is None:
                require_server(f"this machine has no program for {name}: {kind.hint}")
            if (name, *args) not in started:
                started[name, *args] = stack.enter_context(kind.private(*args))
            return started[name, *args]

        yield private


@pytest.fixture
async def queue(queues: Queues) -> Queue:
    """A fresh, migrated, empty queue."""
    return await queues.make()
