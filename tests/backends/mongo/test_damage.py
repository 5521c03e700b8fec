"""Documents that were changed or deleted by hand: other groups are served, and errors name the document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

import fairlane
from fairlane import EventDecodingError, QueueDamaged, migrate
from tests.harness import Queue
from tests.harness.kits.mongo import MongoKit

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("sync"), pytest.mark.promise(1, 2)]

Damage = Callable[[Any], Any]


def group(change: dict[str, Any]) -> Damage:
    return lambda part: part("groups").update_one({"_id": "bad"}, change)


def message(change: dict[str, Any]) -> Damage:
    return lambda part: part("messages").update_one({"group_id": "bad"}, change)


GROUPS: dict[str, Damage] = {
    "attempts is text": group({"$set": {"attempts": "x"}}),
    "attempts is missing": group({"$unset": {"attempts": ""}}),
    "leased is missing": group({"$unset": {"leased": ""}}),
    "leased is text": group({"$set": {"leased": "x"}}),
    "acked is missing": group({"$unset": {"acked": ""}}),
    "acked is text": group({"$set": {"acked": "x"}}),
    "touched is missing": group({"$unset": {"touched": ""}}),
    "token and worker_id are missing": group({"$unset": {"token": "", "worker_id": ""}}),
    "ready_at is text": group({"$set": {"ready_at": "soon"}}),
    "ready_at is missing": group({"$unset": {"ready_at": ""}}),
    "priority is text": group({"$set": {"priority": "x"}}),
    "priority is missing": group({"$unset": {"priority": ""}}),
    "only the id is left": lambda part: part("groups").replace_one({"_id": "bad"}, {"note": "by hand"}),
    "the group is gone": lambda part: part("groups").delete_one({"_id": "bad"}),
}
MESSAGES: dict[str, Damage] = {
    "priority is missing": message({"$unset": {"priority": ""}}),
    "published_at is text": message({"$set": {"published_at": "today"}}),
    "published_at is missing": message({"$unset": {"published_at": ""}}),
}


@pytest.fixture
def part(queue: Queue) -> Iterator[Callable[[str], Any]]:
    assert isinstance(queue.kit, MongoKit)
    with queue.kit.connect(queue.name) as client:
        yield lambda name: client.get_default_database("fairlane")[f"{queue.name}_{name}"]


def look(transport: Any) -> None:
    """Check that inspection works on a damaged queue."""
    transport.inspect.queue()
    transport.inspect.groups()
    transport.inspect.messages("bad")


@pytest.mark.parametrize(
    "damage", [*GROUPS.values(), *MESSAGES.values()], ids=[*GROUPS, *(f"message {x}" for x in MESSAGES)]
)
async def test_what_can_be_computed_from_the_messages_is_repaired_and_every_group_is_served(
    queue: Queue, part: Any, damage: Damage
) -> None:
    for name in ("bad", "x", "bad"):
        queue.transport.publish(name, name)
    damage(part)
    look(queue.transport)
    served = []
    while (lease := queue.transport.claim("w", 30)) is not None:
        look(queue.transport)
        assert lease.attempts == 1
        assert lease.published_at.tzinfo is not None
        served.append((lease.group_id, lease.seq))
        queue.transport.ack(lease)
    assert sorted(served) == [("bad", 1), ("bad", 3), ("x", 2)]
    assert await queue.leftovers() == {}


@pytest.mark.parametrize(
    "change", [{"$unset": {"event": ""}}, {"$set": {"event": {"a": 1}}}], ids=["missing", "object"]
)
async def test_an_event_that_is_not_text_is_an_error_with_its_lease(queue: Queue, part: Any, change: Any) -> None:
    queue.transport.publish("bad", "bad")
    queue.transport.publish("x", "x")
    message(change)(part)
    look(queue.transport)
    with pytest.raises(EventDecodingError) as caught:
        queue.transport.claim("w", 30)
    assert caught.value.lease.group_id == "bad"
    queue.transport.ack(caught.value.lease)
    assert [group for group, _ in await queue.drain()] == ["x"]
    assert await queue.leftovers() == {}


async def test_a_message_whose_id_is_no_number_is_named_and_its_group_set_aside(queue: Queue, part: Any) -> None:
    stray = ObjectId()
    queue.transport.publish("bad", "bad")
    queue.transport.publish("x", "x")
    part("messages").delete_one({"group_id": "bad"})
    part("messages").insert_one({"_id": stray, "group_id": "bad", "event": "1", "priority": 0})
    with pytest.raises(QueueDamaged, match=f"{queue.name}_messages.*{stray}.*'bad'"):
        queue.transport.claim("w", 30)
    assert [(found.group_id, found.state) for found in queue.transport.inspect.groups()] == [
        ("x", "ready"),
        ("bad", "parked"),
    ]
    look(queue.transport)
    assert [group for group, _ in await queue.drain()] == ["x"]


async def test_a_message_without_a_group_stops_no_other_group(queue: Queue, part: Any) -> None:
    """Guards against a claim on an empty line that checks only the message with the smallest seq."""
    for name in ("lost", "bad", "x"):
        queue.transport.publish(name, name)
    part("messages").update_one({"_id": 1}, {"$unset": {"group_id": ""}})
    part("groups").delete_many({"_id": {"$in": ["lost", "bad"]}})
    assert [group for group, _ in await queue.drain()] == ["x", "bad"]
    assert queue.transport.claim("w", 30) is None


@pytest.mark.parametrize(
    ("damage", "said"), [({"seq": "x"}, "seq"), ({"seq": None}, "seq"), ({"head_start": "x"}, "head_start")],
    ids=["seq-text", "seq-null", "head-start"],
)  # fmt: skip
async def test_a_damaged_document_of_the_queue_is_named_before_anything_is_stored(
    queue: Queue, part: Any, damage: Any, said: str
) -> None:
    seqs = [queue.transport.publish("bad", number) for number in range(3)]
    part("meta").update_one({"_id": "queue"}, {"$set": damage})
    with pytest.raises(QueueDamaged, match=f"{said}.*{queue.name}_meta.*fairlane migrate"):
        queue.transport.publish("bad", "more")
    assert part("messages").count_documents({}) == 3
    assert not migrate.status(queue.kit.url(queue.name), queue=queue.name).ready
    migrate.upgrade(queue.kit.url(queue.name), queue=queue.name)
    with fairlane.connect(queue.kit.url(queue.name), queue.name) as transport:
        assert transport.publish("bad", "more") > seqs[-1]


async def test_a_migration_restores_the_priority_of_a_group(queue: Queue, part: Any) -> None:
    """Until then a claim finds this group only when no other group is in line."""
    url = queue.kit.url(queue.name)
    queue.transport.publish("bad", 1, 3)
    queue.transport.publish("x", 2)
    group({"$set": {"priority": "x"}})(part)
    assert "'bad'" in str(migrate.status(url, queue=queue.name).fault)
    migrate.upgrade(url, queue=queue.name)
    assert migrate.status(url, queue=queue.name).ready
    assert queue.transport.claim("w", 30, 3).group_id == "bad"


async def test_a_migration_restores_lost_indexes(queue: Queue, part: Any) -> None:
    before = part("messages").index_information()
    part("messages").drop_index("dedup")
    migrate.upgrade(queue.kit.url(queue.name), queue=queue.name)
    assert part("messages").index_information() == before


async def test_a_lost_index_with_duplicates_names_them_and_what_to_do(queue: Queue, part: Any) -> None:
    """Guards against an untranslated driver error."""
    url = queue.kit.url(queue.name)
    for number in range(2):
        queue.transport.publish("bad", number, dedup_id=f"d{number}")
    part("messages").drop_index("dedup")
    part("messages").update_one({"dedup_id": "d1"}, {"$set": {"dedup_id": "d0"}})
    with pytest.raises(QueueDamaged, match=r"'d0' is that of \[1, 2\].*unset their dedup_id"):
        migrate.upgrade(url, queue=queue.name)
    part("messages").update_one({"_id": 2}, {"$unset": {"dedup_id": ""}})
    migrate.upgrade(url, queue=queue.name)
    assert "dedup" in part("messages").index_information()
    assert [event for _, event in await queue.drain()] == [0, 1]


async def test_a_counter_behind_its_messages_is_repaired(queue: Queue, part: Any) -> None:
    """As after a restore of a dump that read the collections at different times."""
    for number in range(5):
        queue.transport.publish("bad", number)
    part("meta").update_one({"_id": "queue"}, {"$set": {"seq": 1}})
    migrate.upgrade(queue.kit.url(queue.name), queue=queue.name)
    assert part("meta").find_one({"_id": "queue"})["seq"] == 5


async def test_a_group_that_was_changed_by_hand_while_leased_can_still_be_finished(queue: Queue, part: Any) -> None:
    for number in range(2):
        queue.transport.publish("bad", number)
    lease = queue.transport.claim("w", 30)
    group({"$unset": {"leased": "", "acked": "", "touched": ""}})(part)
    queue.transport.ack(queue.transport.extend(lease, 60))
    assert [event for _, event in await queue.drain()] == [1]
    assert await queue.leftovers() == {}
    assert datetime.now(UTC) > lease.published_at


@pytest.mark.parametrize("damage", GROUPS.values(), ids=GROUPS)
async def test_a_damaged_group_can_be_paused_and_resumed(queue: Queue, part: Any, damage: Damage) -> None:
    """Guards against a group that a damaged field keeps in line, or out of it for ever."""
    await queue.publish("bad", 1)
    damage(part)
    assert await queue.pause("bad") is True
    assert await queue.claim("w", 30) is None
    assert [row.state for row in await queue.groups()] == ["paused"]
    assert await queue.resume("bad") is True
    assert await queue.drain() == [("bad", 1)]
    assert await queue.leftovers() == {}


async def test_a_group_without_a_place_waits_as_well_while_the_queue_is_paused(queue: Queue, part: Any) -> None:
    """Guards against a place of null, which MongoDB sorts before all times."""
    await queue.publish("bad", 1)
    part("groups").update_one({"_id": "bad"}, {"$set": {"ready_at": None}})
    await queue.pause()
    assert await queue.claim("w", 30) is None
    await queue.resume()
    assert await queue.drain() == [("bad", 1)]
