"""The kit of MongoDB."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import fairlane
from fairlane import Lease
from fairlane.backends.stored import CLAIM, NACK, PUBLISH, Call, Operation, Rows
from tests.harness.kits.base import EPOCH, Kit

OPTIONS = ("unique", "partialFilterExpression")
"""What an index may have besides its keys."""


class MongoKit(Kit):
    backend = "mongo"
    variable = "FAIRLANE_TEST_MONGO_URL"

    _clients: ClassVar[dict[tuple[str, int], Any]] = {}
    _migrated: ClassVar[dict[tuple[str, Any], dict[str, Any]]] = {}

    def connect(self, queue: str) -> Any:
        import pymongo

        return pymongo.MongoClient(self.url(queue))

    def database(self, queue: str) -> Any:
        """The database, through a client that stays open: with the emulator, connecting takes longer than a request."""
        import pymongo

        key = (self.url(queue), os.getpid())
        if key not in self._clients:
            self._clients[key] = pymongo.MongoClient(key[0])
        return self._clients[key].get_default_database("fairlane")

    def create(self, queue: str, head_start: float | str | None = None) -> None:
        """Make a queue: copy what one migration has made, since a migration sends some twenty requests to the slow
        emulator."""
        key = (self.url(queue), head_start)
        if key not in self._migrated:
            super().create(queue, head_start)
            self._migrated[key] = self.layout(queue)
            return
        layout, database = self._migrated[key], self.database(queue)
        for part, indexes in layout["indexes"].items():
            database[f"{queue}_{part}"].create_indexes(indexes)
        database[f"{queue}_meta"].insert_one(dict(layout["meta"]))

    def layout(self, queue: str) -> dict[str, Any]:
        """What a migration makes."""
        from pymongo import IndexModel

        database = self.database(queue)
        indexes: dict[str, list[Any]] = {}
        for part in ("groups", "messages"):
            found = database[f"{queue}_{part}"].index_information()
            indexes[part] = [
                IndexModel(index["key"], name=name, **{key: index[key] for key in OPTIONS if key in index})
                for name, index in found.items()
                if name != "_id_"
            ]
        return {"indexes": indexes, "meta": database[f"{queue}_meta"].find_one({"_id": "queue"})}

    def drop(self, queue: str) -> None:
        """Remove a queue, in as few requests as there are collections."""
        for part in ("groups", "messages", "meta"):
            self.database(queue)[f"{queue}_{part}"].drop()

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        if all(call.operation is PUBLISH for call in calls):
            return self._publish(queue, [dict(call.arguments) for call in calls])
        answers: list[Rows] = []
        with fairlane.connect(self.url(queue), queue) as transport:
            for call in calls:
                answers.append(self._perform(transport, **call.arguments, operation=call.operation))
                if not answers[-1]:
                    break  # nothing is deliverable: the other claims would return the same
        return answers

    def _perform(self, transport: Any, operation: Operation, **arguments: Any) -> Rows:
        if operation is CLAIM:
            lease = transport.claim(arguments["p_worker_id"], arguments["p_visibility"], arguments["p_min_priority"])
            if lease is None:
                return []
            event = json.dumps(lease.event)
            return [{"group_id": lease.group_id, "seq": lease.seq, "event": event, "token": lease.token}]
        held = Lease(arguments["p_group_id"], None, 0, arguments["p_token"], 1, EPOCH, EPOCH)
        getattr(transport, operation.name)(held, *([arguments["p_delay"]] if operation is NACK else []))
        return [{"group_id": held.group_id}]

    def _publish(self, queue: str, publishes: list[dict[str, Any]]) -> list[Rows]:
        """Write the documents that publishing one by one would leave."""
        with self.connect(queue) as client:
            database = client.get_default_database("fairlane")
            meta = database[f"{queue}_meta"].find_one_and_update({"_id": "queue"}, {"$inc": {"seq": len(publishes)}})
            messages: list[dict[str, Any]] = []
            groups: dict[str, dict[str, Any]] = {}
            now = self.now(queue)
            for seq, item in enumerate(publishes, meta["seq"] + 1):
                message = {"_id": seq, "group_id": item["p_group_id"], "event": item["p_event"]}
                messages.append({**message, "priority": item["p_priority"], "published_at": now})
                first = {"priority": item["p_priority"], "ready_at": EPOCH + timedelta(milliseconds=seq)}
                free = {"token": None, "worker_id": None, "leased": None, "attempts": 0, "acked": None, "touched": seq}
                groups.setdefault(item["p_group_id"], {"_id": item["p_group_id"], **first, **free})
            database[f"{queue}_messages"].insert_many(messages)
            known = {group["_id"] for group in database[f"{queue}_groups"].find({}, ("_id",))}
            if new := [group for name, group in groups.items() if name not in known]:
                database[f"{queue}_groups"].insert_many(new)
        return [[{"seq": message["_id"]}] for message in messages]

    def now(self, queue: str) -> datetime:
        now: datetime = self.database(queue).client.admin.command("hello")["localTime"]
        return now.replace(tzinfo=UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        names = [f"{queue}_groups", f"{queue}_messages"]
        return {name: self.database(queue)[name].count_documents({}) for name in names}
