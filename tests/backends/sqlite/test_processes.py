"""Several processes on one file, where leases expire and workers die: no message is lost, doubled or out of order."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from fairlane.errors import LeaseLost

PROCESSES = 4
GROUPS = 30
MESSAGES = 20
DEADLINE = 60.0


def publish(url: str, mine: list[str], start: Barrier) -> None:
    with fairlane.connect(url) as queue:
        start.wait(DEADLINE)
        for number in range(MESSAGES):
            for name in mine:
                queue.publish(name, number, dedup_id=f"{name}/{number}" if number % 3 else None)


def work(url: str, seed: int, log: str, start: Barrier) -> None:
    """Claim and ack until everything is done, and write each successful ack to the log."""
    rng = random.Random(seed)
    with fairlane.connect(url) as queue, Path(log).open("w") as out:
        start.wait(DEADLINE)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            lease = queue.claim(f"w{seed}", 0.05)
            if lease is None:
                if not queue.inspect.queue().messages and Path(f"{log}.published").exists():
                    return
                time.sleep(0.002)
                continue
            fate = rng.random()
            try:
                if fate < 0.1:
                    queue.nack(lease, rng.choice([0, 0.01]))
                    continue
                if fate < 0.15:
                    time.sleep(0.08)  # the lease expires meanwhile, and another worker may have the message
                elif fate < 0.3:
                    lease = queue.extend(lease, 0.1)
                if fate > 0.995:
                    continue  # as if this worker had died
                queue.ack(lease)
            except LeaseLost:
                continue
            out.write(f"{time.monotonic_ns()} {lease.group_id} {lease.event} {lease.seq}\n")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("synchronous", ["normal", "full"])
def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path, synchronous: Any) -> None:
    url = f"sqlite:///{tmp_path}/q.db?synchronous={synchronous}"
    migrate.upgrade(url)
    context = multiprocessing.get_context("spawn")
    names = [f"g{number}" for number in range(GROUPS)]
    logs = [str(tmp_path / f"log{number}") for number in range(PROCESSES)]
    # all begin together: on a busy machine one process may start so late that the others have done all the work
    start = context.Barrier(2 + PROCESSES)
    publishers = [context.Process(target=publish, args=(url, names[at::2], start)) for at in range(2)]
    workers = [context.Process(target=work, args=(url, at, log, start)) for at, log in enumerate(logs)]
    for each in publishers + workers:
        each.start()
    for each in publishers:
        each.join(DEADLINE)
    for log in logs:
        Path(f"{log}.published").touch()
    for each in workers:
        each.join(DEADLINE)
    assert [each.exitcode for each in publishers + workers] == [0] * (2 + PROCESSES)

    acked = [line.split() for log in logs for line in Path(log).read_text().splitlines()]
    assert len(acked) == GROUPS * MESSAGES
    assert len({(name, event) for _, name, event, _ in acked}) == GROUPS * MESSAGES
    # sorted by seq and not by the noted time, since a worker may write to its log a little after its ack
    for name in names:
        events = [int(event) for _, group, event, seq in sorted(acked, key=lambda row: int(row[3])) if group == name]
        assert events == list(range(MESSAGES))
    with fairlane.connect(url) as queue:
        status = queue.inspect.queue()
        assert (status.groups, status.messages) == (0, 0)
    shares = [len(Path(log).read_text().splitlines()) for log in logs]
    assert min(shares) > GROUPS * MESSAGES / PROCESSES / 20, shares


def migrating(url: str, barrier: Barrier) -> None:
    barrier.wait(30)
    migrate.upgrade(url)
    with fairlane.connect(url) as queue:
        queue.publish("g", os.getpid())


@pytest.mark.timeout(120)
def test_eight_processes_migrate_an_empty_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(8)
    processes = [context.Process(target=migrating, args=(url, barrier)) for _ in range(8)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0] * 8
    with fairlane.connect(url) as queue:
        assert queue.inspect.queue().messages == 8
