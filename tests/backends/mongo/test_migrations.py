"""`fairlane migrate` creates the right collections in MongoDB, repairs lost ones, and a downgrade leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

import fairlane
from fairlane import BackendUnavailable, migrate
from fairlane.backends.mongo.target import MongoTarget
from fairlane.backends.shared.lock_target import LOCK_SECONDS
from fairlane.backends.targets import Choices
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from tests.harness import Queues

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("sync")]


@pytest.fixture
def database(arm: Any) -> Iterator[Any]:
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(arm[0].url("")) as client:
        yield client.get_default_database("fairlane")


@pytest.fixture
def place(arm: Any, queues: Queues) -> Iterator[tuple[str, str]]:
    """The URL of the server, and the name of a queue that does not exist yet."""
    name = queues.fresh_name()
    url = arm[0].url(name)
    yield url, name
    migrate.downgrade(url, queue=name, revision="base")


def collections(database: Any, queue: str) -> set[str]:
    return {name for name in database.list_collection_names() if name.startswith(f"{queue}_")}


def test_up_down_and_up_again(place: tuple[str, str], database: Any) -> None:
    url, queue = place
    assert migrate.status(url, queue=queue).found is None
    with pytest.raises(SchemaNotReady):
        fairlane.connect(url, queue)
    migrate.upgrade(url, queue=queue)
    made = {name: database[name].index_information() for name in collections(database, queue)}
    assert set(made) == {f"{queue}_{part}" for part in ("groups", "messages", "meta")}
    assert set(made[f"{queue}_groups"]) == {"_id_", "line"}
    assert set(made[f"{queue}_messages"]) == {"_id_", "head", "dedup"}
    assert made[f"{queue}_messages"]["dedup"]["unique"]
    assert migrate.status(url, queue=queue).ready
    migrate.downgrade(url, queue=queue, revision="base")
    assert collections(database, queue) == set()
    migrate.upgrade(url, queue=queue)
    assert {name: database[name].index_information() for name in collections(database, queue)} == made


@pytest.mark.parametrize("head_start", [None, "always"])
def test_queues_of_the_suite_are_what_a_migration_makes(
    arm: Any, place: tuple[str, str], database: Any, head_start: Any
) -> None:
    """The kit copies them from one migrated queue, since a migration takes long on the emulator."""
    url, queue = place
    kit = arm[0]
    kit.create(queue, head_start)  # the first queue of this kind is migrated
    kit.drop(queue)
    kit.create(queue, head_start)
    copied = {name: database[name].index_information() for name in collections(database, queue)}
    document = database[f"{queue}_meta"].find_one({"_id": "queue"})
    migrate.downgrade(url, queue=queue, revision="base")
    migrate.upgrade(url, queue=queue, head_start=head_start)
    assert {name: database[name].index_information() for name in collections(database, queue)} == copied
    assert database[f"{queue}_meta"].find_one({"_id": "queue"}) == document


def test_a_second_upgrade_keeps_messages_and_choices(place: tuple[str, str], database: Any) -> None:
    url, queue = place
    migrate.upgrade(url, queue=queue, head_start=0.25)
    with fairlane.connect(url, queue) as transport:
        transport.publish("g", 1)
        migrate.upgrade(url, queue=queue)
        lease = transport.claim("w", 30)
        assert lease is not None
        assert lease.event == 1
    assert database[f"{queue}_meta"].find_one({"_id": "queue"})["head_start"] == "0.25"


def test_a_lost_counter_is_repaired(place: tuple[str, str], database: Any) -> None:
    """Guards against a seq that is used again after somebody deleted the queue's document."""
    url, queue = place
    migrate.upgrade(url, queue=queue)
    with fairlane.connect(url, queue) as transport:
        last = [transport.publish("g", number) for number in range(3)][-1]
        database[f"{queue}_meta"].delete_one({"_id": "queue"})
        with pytest.raises(SchemaNotReady):
            transport.publish("g", 3)
        migrate.upgrade(url, queue=queue)
        assert transport.publish("g", 3) > last


def test_a_counter_that_was_set_back_overwrites_nothing(place: tuple[str, str], database: Any) -> None:
    url, queue = place
    migrate.upgrade(url, queue=queue)
    with fairlane.connect(url, queue) as transport:
        seqs = [transport.publish("g", number) for number in range(3)]
        database[f"{queue}_meta"].update_one({"_id": "queue"}, {"$set": {"seq": 0}})
        assert transport.publish("g", 3) > seqs[-1]
        found = []
        while (lease := transport.claim("w", 30)) is not None:
            found.append(lease.event)
            transport.ack(lease)
    assert found == [0, 1, 2, 3]


def test_a_stamp_writes_the_revision_and_nothing_else(place: tuple[str, str], database: Any) -> None:
    from alembic import command
    from alembic.config import Config

    from fairlane.migrate.settings import Settings
    from fairlane.templates import bundle_root

    url, queue = place
    config = Config(str(bundle_root() / "alembic.ini"))
    config.attributes["fairlane_settings"] = Settings(url, Choices(queue))
    command.stamp(config, CLIENT_REVISION)
    assert migrate.status(url, queue=queue).found == CLIENT_REVISION
    assert collections(database, queue) == {f"{queue}_meta"}
    command.stamp(config, "base")
    assert migrate.status(url, queue=queue).found is None


def test_eight_processes_at_once_all_succeed(place: tuple[str, str], database: Any) -> None:
    url, queue = place
    program = f"from fairlane import migrate; migrate.upgrade({url!r}, queue={queue!r})"
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(8)]
    results = [(process.communicate(timeout=120)[1].decode(), process.returncode) for process in running]
    assert [code for _, code in results] == [0] * 8, results
    assert migrate.status(url, queue=queue).ready
    assert database[f"{queue}_meta"].find_one({"_id": "lock"}) is None


def hold(database: Any, queue: str, seconds: float) -> None:
    """Leave the lock in the database, as a killed migration does."""
    meta = database[f"{queue}_meta"]
    meta.insert_one({"_id": "lock", "holder": "gone"})
    meta.update_one({"_id": "lock"}, [{"$set": {"until": {"$add": ["$$NOW", int(seconds * 1000)]}}}])


def test_a_migration_waits_for_a_killed_one_only_until_its_lock_ends(
    place: tuple[str, str], database: Any, caplog: Any
) -> None:
    """It says once what it waits for. Guards against a migration that waits for a minute and prints nothing."""
    url, queue = place
    hold(database, queue, 3)
    migrate.upgrade(url, queue=queue)
    assert migrate.status(url, queue=queue).ready
    (said,) = [record.getMessage() for record in caplog.records if record.name == "fairlane.migrate"]
    assert "waiting for another migration" in said
    assert f"the document 'lock' in {queue}_meta" in said
    assert LOCK_SECONDS <= 10


def test_a_lock_that_is_held_too_long_is_named(place: tuple[str, str], database: Any, monkeypatch: Any) -> None:
    url, queue = place
    hold(database, queue, 60)
    monkeypatch.setattr("fairlane.backends.shared.lock_target.WAIT_SECONDS", 0.3)
    with pytest.raises(BackendUnavailable, match=f"'lock' in {queue}_meta.*nothing was changed"):
        migrate.upgrade(url, queue=queue)
    assert collections(database, queue) == {f"{queue}_meta"}
    database[f"{queue}_meta"].delete_one({"_id": "lock"})


def test_a_slow_migration_keeps_its_lock_while_it_works(place: tuple[str, str]) -> None:
    """A migration that has lost its lock stops before it writes a revision."""
    url, queue = place
    target = MongoTarget(url, Choices(queue))
    with target.lock():
        target.keep_lock()
        target._meta.update_one({"_id": "lock"}, {"$set": {"holder": "another"}})
        with pytest.raises(BackendUnavailable, match="another migration has taken"):
            target.apply((), CLIENT_REVISION, serves=CLIENT_REVISION, stamp=False)
    assert target.read() is None
    target._meta.delete_one({"_id": "lock"})
    target.close()


def test_the_script_for_mongosh_says_what_an_upgrade_does(place: tuple[str, str]) -> None:
    url, queue = place
    script = migrate.script(url, queue=queue, head_start=0.25)
    assert f'db.{queue}_groups.createIndex({{"priority": 1, "ready_at": 1}}, {{"name": "line"}});' in script
    assert '"partialFilterExpression": {"dedup_id": {"$exists": true}}' in script
    assert '"head_start": "0.25"' in script
    assert '"$max": {"seq": NumberLong(0)}' in script
    assert '"writeConcern": {"w": "majority"}' in script


def test_two_queues_never_touch(place: tuple[str, str]) -> None:
    url, queue = place
    other = f"{queue}_groups"[:31]  # this name looks like a collection of the first queue
    migrate.upgrade(url, queue=queue)
    migrate.upgrade(url, queue=other)
    try:
        with fairlane.connect(url, queue) as one, fairlane.connect(url, other) as two:
            one.publish("g", "one", dedup_id="same")
            two.publish("g", "two", dedup_id="same")
            assert one.inspect.queue().messages == two.inspect.queue().messages == 1
    finally:
        migrate.downgrade(url, queue=other, revision="base")
    assert migrate.status(url, queue=queue).ready


def test_a_downgrade_ends_all_pauses_and_an_upgrade_none(place: tuple[str, str], database: Any) -> None:
    """Guards against groups that nobody can resume, since clients of revision 0001 cannot; and against a repair of the
    queue's document that ends pauses on its way to the newest revision."""
    url, queue = place
    migrate.upgrade(url, queue=queue)
    with fairlane.connect(url, queue) as transport:
        transport.publish("g", 1, 3)
        for group_id in ("g", "empty", None):
            assert transport.pause(group_id)
        database[f"{queue}_meta"].delete_one({"_id": "queue"})
        migrate.upgrade(url, queue=queue)
        status = transport.inspect.queue()
        assert (status.groups, status.paused, status.is_paused) == (1, 1, True)
        migrate.downgrade(url, queue=queue, revision="0001")
        migrate.upgrade(url, queue=queue)
        status = transport.inspect.queue()
        assert (status.paused, status.is_paused) == (0, False)
        lease = transport.claim("w", 30, min_priority=3)
        assert lease is not None
        transport.ack(lease)
        assert transport.claim("w", 30) is None
    assert database[f"{queue}_groups"].count_documents({}) == 0


def test_the_script_for_a_downgrade_ends_all_pauses_too(place: tuple[str, str]) -> None:
    """mongosh is not tried, only what it is told."""
    url, queue = place
    script = migrate.script(url, queue=queue, revision="0002:0001")
    assert f'db.{queue}_groups.deleteOne({{"_id": ""}});' in script
    assert '{"priority": {"$in": [-5, -4, -3, -2, -1]}}, {"$inc": {"priority": 5}}' in script
