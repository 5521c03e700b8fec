"""Data changed by hand on libSQL or rqlite: other groups are served, and the error names what is wrong."""

from __future__ import annotations

import pytest

from fairlane import Message, QueueDamaged, migrate
from tests.backends.shared.breakable import servers
from tests.harness import Queue
from tests.harness.kits.libsql import LibsqlKit
from tests.harness.kits.rqlite import RqliteKit
from tests.harness.queues import in_thread


async def by_hand(queue: Queue, statement: str) -> None:
    assert isinstance(queue.kit, LibsqlKit | RqliteKit)
    await in_thread(queue.kit.send, queue.name, [(statement.replace("q_", f"{queue.name}_"), {})])


async def repaired(queue: Queue) -> None:
    await in_thread(migrate.upgrade, queue.kit.url(queue.name), queue=queue.name)


@pytest.mark.parametrize("head", ["99", "-1"])
@servers()
async def test_a_head_without_its_message_stops_no_other_group(queue: Queue, head: str) -> None:
    for number in range(2):
        await queue.publish("damaged", number)
        await queue.publish("whole", number)
    await by_hand(queue, f"update q_groups set head_seq = {head} where group_id = 'damaged'")
    with pytest.raises(QueueDamaged, match=r"group 'damaged' begins with message .*, which is not there; .* parked"):
        await queue.claim("w", 30)
    assert await queue.drain() == [("whole", 0), ("whole", 1)]
    await repaired(queue)
    assert await queue.drain() == [("damaged", 0), ("damaged", 1)]
    assert await queue.leftovers() == {}


@servers()
async def test_a_damaged_group_hides_no_other_lease_of_a_batch(queue: Queue) -> None:
    for group in ("a", "damaged", "b"):
        await queue.publish(group, group)
    await by_hand(queue, "update q_groups set head_seq = 99 where group_id = 'damaged'")
    leases = await queue.claim_many("w", 30, 10)
    assert [lease.group_id for lease in leases] == ["a", "b"]
    assert {group.group_id: group.state for group in await queue.groups()}["damaged"] == "parked"
    assert await queue.ack_many(leases) == []


@servers()
async def test_messages_whose_group_was_deleted_keep_their_order(queue: Queue) -> None:
    for number in range(3):
        await queue.publish("g", number)
    await by_hand(queue, "delete from q_groups")
    await queue.publish("g", 3)
    assert await queue.drain() == [("g", number) for number in range(4)]


@pytest.mark.parametrize(
    "damage",
    [
        "update q_settings set value = 'x' where name = 'last_seq'",
        "update q_settings set value = 9223372036854775807 where name = 'last_seq'",
        "delete from q_settings where name = 'last_seq'",
    ],
)
@servers()
async def test_a_publish_without_a_next_seq_names_the_setting(queue: Queue, damage: str) -> None:
    seq = await queue.publish("g", 0)
    await by_hand(queue, damage)
    with pytest.raises(QueueDamaged, match="last_seq"):
        await queue.publish("g", 1)
    with pytest.raises(QueueDamaged, match="last_seq"):
        await queue.publish_many([Message("g", 1), Message("h", 1)])
    await repaired(queue)
    assert await queue.publish("g", 1) > seq
    assert await queue.drain() == [("g", 0), ("g", 1)]
