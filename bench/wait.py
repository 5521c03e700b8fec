"""Measure claims that wait: the time from commit to lease, and what a claim costs that waits for nothing.

    make bench-wait BENCH_ARGS="--backend postgres --messages 300"

A publisher and a worker are two processes. The publisher publishes into a drained queue at random moments, one message
at a time, and notes when the call has returned. The worker waits, and notes when it has the lease. Both read the clock
of the machine. A lease that arrives before the publisher's call returns counts as 0. What a waiting claim costs is
measured afterwards: CPU time of the process, and requests, while 1 claim waits and while 200 tasks wait.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import tempfile
import time
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Any

import fairlane
from fairlane import migrate

QUEUE = "bench_wait"
VARIABLES = {"postgres": "FAIRLANE_TEST_POSTGRES_URL", "redis": "FAIRLANE_TEST_REDIS_URL"}
BACKENDS = ("sqlite", *VARIABLES)


def work(url: str, messages: int, pipe: Connection) -> None:
    """Claim messages with `wait`, and send when each lease was there."""
    with fairlane.connect(url, QUEUE) as queue:
        pipe.send("ready")
        times: dict[int, float] = {}
        while len(times) < messages:
            lease = queue.claim("worker", 60, wait=30)
            if lease is not None:
                times[lease.seq] = time.monotonic()
                queue.ack(lease)
    pipe.send(times)


def latencies(url: str, messages: int) -> list[float]:
    """Return the seconds from commit to lease of each message."""
    mine, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url, messages, other))
    process.start()
    mine.recv()
    committed: dict[int, float] = {}
    with fairlane.connect(url, QUEUE) as queue:
        for number in range(messages):
            time.sleep(random.uniform(0.02, 0.1))
            seq = queue.publish(f"g{number}", {"number": number})
            committed[seq] = time.monotonic()
    leased: dict[int, float] = mine.recv()
    process.join()
    return [max(0.0, leased[seq] - committed[seq]) for seq in committed]


def counted(transport: Any) -> list[float]:
    """Return a list that grows with each request of a transport."""
    sent: list[float] = []
    original = transport._execute

    def execute(request: Any) -> Any:
        sent.append(time.monotonic())
        return original(request)

    transport._execute = execute
    return sent


def idle(url: str, seconds: float) -> tuple[float, float]:
    """Return the share of a core, and the requests a second, of one claim that waits for nothing."""
    with fairlane.connect(url, QUEUE) as queue:
        sent = counted(queue)
        queue.claim("worker", 60, wait=2)  # the first looks follow each other quickly
        sent.clear()
        cpu, began = time.process_time(), time.monotonic()
        queue.claim("worker", 60, wait=seconds)
        took = time.monotonic() - began
        return (time.process_time() - cpu) / took, (len(sent) - 2) / took  # the first and the last claim are not idle


async def idle_tasks(url: str, seconds: float, tasks: int) -> tuple[float, float]:
    """Return the same for many tasks of one transport."""
    async with await fairlane.connect_async(url, QUEUE) as queue:
        sent = counted(queue)
        waiters = [asyncio.create_task(queue.claim(f"worker {n}", 60, wait=3600)) for n in range(tasks)]
        await asyncio.sleep(3)
        sent.clear()
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        figures = (time.process_time() - cpu) / took, len(sent) / took
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        return figures


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this one; may be repeated")
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to wait for nothing")
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    for backend in options.backend or BACKENDS:
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
            variable = VARIABLES.get(backend)
            url = f"sqlite:///{folder}/q.db" if variable is None else os.environ[variable]
            migrate.upgrade(url, queue=QUEUE)
            try:
                found = sorted(latencies(url, options.messages))
                p95 = quantiles(found, n=20)[-1]
                print(f"{backend}: commit to lease p50 {median(found) * 1e3:.2f} ms, p95 {p95 * 1e3:.2f} ms,", end=" ")
                print(f"largest {found[-1] * 1e3:.1f} ms", flush=True)
                cpu, rate = idle(url, options.seconds)
                print(f"{backend}: one idle claim {cpu:.2%} of a core, {rate:.2f} requests a second", flush=True)
                cpu, rate = asyncio.run(idle_tasks(url, options.seconds, options.tasks))
                print(f"{backend}: {options.tasks} idle tasks {cpu:.2%} of a core, {rate:.2f} requests a second")
            finally:
                migrate.downgrade(url, queue=QUEUE, revision="base")


if __name__ == "__main__":
    main()
