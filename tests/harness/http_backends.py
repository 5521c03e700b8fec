"""What the tests of backends that use HTTP share: TLS, threads, event loops, sockets."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fairlane
from tests.harness import LONG, Queue
from tests.harness.queues import in_thread

OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"


def make_certificate(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that is trusted only by clients that are configured so, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*OPENSSL.split(), *files], check=True, capture_output=True)
    return certificate, key


async def opened(twin: str, url: str, **options: Any) -> Any:
    """A transport of the queue q."""
    if twin == "sync":
        return await in_thread(fairlane.connect, url, "q", **options)
    return await fairlane.connect_async(url, "q", **options)


def open_files() -> int:
    """Return how many files and sockets this process has open."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("this system does not tell which files are open")
    gc.collect()
    return len(list(folder.iterdir()))


def assert_moves_to_the_loop_it_is_used_in(url: str, queue: str) -> None:
    """Connections belong to an event loop, but a transport may be used longer than one loop."""
    fairlane.migrate.upgrade(url, queue=queue)
    transport = asyncio.run(fairlane.connect_async(url, queue))
    for number in range(3):
        assert asyncio.run(transport.publish("g", number)) == number + 1
    lease = asyncio.run(transport.claim("w", LONG))
    assert lease is not None
    assert lease.event == 0
    asyncio.run(transport.close())


async def assert_neither_proxies_nor_netrc_come_between(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The environment's settings for HTTP clients are not meant for a database."""
    netrc = folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login nobody password wrong")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    other = await queue.another()
    await other.publish("g", 1)
    assert await other.drain() == [("g", 1)]


def assert_threads_share_a_transport(url: str, queue: str) -> None:
    """Sixteen threads publish, then claim until nothing is left: every message goes to one of them, in order."""
    fairlane.migrate.upgrade(url, queue=queue)
    seen: dict[str, list[int]] = {f"g{n}": [] for n in range(8)}
    guard = threading.Lock()

    def work(transport: Any, number: int) -> None:
        for n in range(5):
            transport.publish(f"g{number % 8}", number * 100 + n)
        while (lease := transport.claim(f"w{number}", LONG)) is not None:
            with guard:
                seen[lease.group_id].append(lease.event)
            transport.ack(lease)

    with fairlane.connect(url, queue) as transport, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: work(transport, number), range(16)))
        assert transport.inspect.queue().messages == 0
    everything = [event for events in seen.values() for event in events]
    assert Counter(everything) == Counter(number * 100 + n for number in range(16) for n in range(5))
    for events in seen.values():
        for number in {event // 100 for event in events}:
            own = [event for event in events if event // 100 == number]
            assert own == sorted(own)
