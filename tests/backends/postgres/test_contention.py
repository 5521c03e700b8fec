"""Many sessions at the same time, in any order: claims find the free groups, and no message is lost or reordered."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.backends.postgres.sessions import Lane

CLAIMERS = 12
SECONDS = 3.0


def test_with_as_many_groups_as_claimers_every_claim_finds_a_group(lane: Lane) -> None:
    """Each claimer holds one group at most, so one group is always free. The loop runs in the server, to be fast."""
    for number in range(CLAIMERS):
        lane.watcher.publish(f"g{number}")
    end = time.monotonic() + SECONDS
    loop = """
        do $$
        declare v_lease record;
        begin
            for i in 1..100 loop
                select * into v_lease from @.claim('worker', 60, 0);
                commit;
                if v_lease.group_id is null then
                    raise 'found nothing';
                end if;
                perform @.nack(v_lease.group_id, v_lease.token, 0);
                commit;
            end loop;
        end
        $$"""

    def churn(_: int) -> int:
        session, rounds = lane.session(), 0
        while time.monotonic() < end:
            session.rows(loop)
            rounds += 1
        return rounds

    with ThreadPoolExecutor(CLAIMERS) as threads:
        rounds = sum(threads.map(churn, range(CLAIMERS)))
    assert rounds >= CLAIMERS


@pytest.mark.parametrize("lane", ["1", "always"], indirect=True)
def test_nothing_is_lost_doubled_or_reordered_while_groups_drain_and_publishers_roll_back(lane: Lane) -> None:
    end = time.monotonic() + SECONDS
    committed: set[int] = set()
    finished: dict[str, list[tuple[int, int, int]]] = defaultdict(list)

    def publish(number: int) -> None:
        rnd, session, count = random.Random(number), lane.session(), 0
        while time.monotonic() < end:
            session.begin()
            seqs = []
            try:
                for group in sorted(rnd.sample(range(12), rnd.choice((1, 1, 2, 3)))):
                    count += 1
                    dedup_id = f"d{rnd.randrange(10)}" if rnd.random() < 0.1 else None
                    seqs.append(session.publish(f"g{group}", json.dumps([number, count]), rnd.randrange(5), dedup_id))
                    time.sleep(rnd.choice((0, 0, rnd.random() * 0.05)))
            # two publishers wait for each other: for a new group, and for a dedup id
            except psycopg.errors.DeadlockDetected:
                session.rollback()
                continue
            if rnd.random() < 0.2:
                session.rollback()
            else:
                session.commit()
                committed.update(seqs)

    def work(number: int) -> Counter[str]:
        rnd, session, counts, idle = random.Random(-number), lane.session(), Counter[str](), 0
        while idle < 8:
            publishing = time.monotonic() < end
            try:
                lease = session.claim(rnd.choice((0, 0, 1, 3)) if publishing else 0, rnd.choice((0.03, 0.1, 0.3)))
            except psycopg.errors.SerializationFailure:  # a transport calls again, too
                counts["again"] += 1
                continue
            if lease is None:
                idle = 0 if publishing else idle + 1
                time.sleep(0 if publishing else 0.1)
                continue
            idle = 0
            step = rnd.choices(("ack", "nack", "abandon"), (85, 11, 4))[0]
            counts[step] += 1
            try:
                if step == "nack":
                    session.nack(lease, rnd.choice((0, 0, 0.02)))
                elif step == "ack":
                    time.sleep(rnd.choice((0, 0, rnd.random() * 0.02)))
                    with session.transaction():
                        session.ack(lease)  # its row lock makes the entries of one group follow each other
                        finished[lease.group_id].append((lease.seq, *lease.event))
            except psycopg.Error as error:
                assert error.sqlstate == "QF001"  # noqa: PT017 - any other error fails the test
                counts["lost"] += 1
        return counts

    with ThreadPoolExecutor(14) as threads:
        publishers = [threads.submit(publish, number) for number in range(1, 9)]
        counts = sum((done.result() for done in [threads.submit(work, n) for n in range(1, 7)]), Counter[str]())
        for publisher in publishers:
            publisher.result()
    delivered = [seq for entries in finished.values() for seq, _, _ in entries]
    assert sorted(delivered) == sorted(committed), counts
    for entries in finished.values():
        newest: dict[int, int] = {}
        for _, publisher_number, count in entries:
            assert count > newest.get(publisher_number, 0)
            newest[publisher_number] = count
    assert (lane.groups, lane.messages) == (set(), 0)
