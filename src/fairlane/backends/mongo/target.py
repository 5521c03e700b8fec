"""Migrations of MongoDB. They create collections and indexes, and the document with the revision.

Every step may be repeated, since existing collections and indexes stay unchanged. The document is written last, so a
queue with a revision is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pymongo
from bson.int64 import Int64
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from fairlane.backends.base import translated
from fairlane.backends.mongo.address import database_of, make, shortest_timeout
from fairlane.backends.mongo.errors import translate
from fairlane.backends.mongo.options import OPTIONS
from fairlane.backends.mongo.publishing import BEHIND, LOST, PAUSED, is_head_start
from fairlane.backends.mongo.wire import GROUPS, MESSAGES, META, QUEUE, WHOLE_QUEUE, Document, number
from fairlane.backends.shared.lock_target import LOCK_SECONDS, LockTarget
from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.retry import Unanswered
from fairlane.backends.targets import Choices
from fairlane.contract import CLIENT_REVISION, DEFAULT_HEAD_START
from fairlane.errors import QueueDamaged
from fairlane.urls import host_of

LOCK = "lock"
"""The `_id` of the document in META that a migration holds while it works."""

SHOWN = 5
"""How many duplicates an error names."""

INDEXES: dict[str, list[tuple[str, list[tuple[str, int]], dict[str, Any]]]] = {
    # for each priority, groups in the order of claims
    GROUPS: [("line", [("priority", 1), ("ready_at", 1)], {})],
    MESSAGES: [
        ("head", [("group_id", 1), ("_id", 1)], {}),
        ("dedup", [("dedup_id", 1)], {"unique": True, "partialFilterExpression": {"dedup_id": {"$exists": True}}}),
    ],
}
"""The indexes of each collection: name, fields and options. The default collation compares byte for byte."""


class MongoTarget(LockTarget):
    """A queue of MongoDB as the target of migrations."""

    def __init__(self, url: str, choices: Choices) -> None:
        super().__init__(choices.queue, "mongo", host_of(url), f"the document {LOCK!r} in {choices.queue}_{META}")
        self._head_start = choices.head_start
        self._token = uuid4().hex
        self._client = make(MongoClient[Document], url)
        chosen: float = read_options("mongo", OPTIONS, url, {}, others=True)["timeout"]
        self._timeout = shortest_timeout(self._client, chosen)
        self._database = database_of(self._client, None)
        self._meta = self._collection(META)

    def _collection(self, name: str) -> Collection[Document]:
        return self._database[f"{self._queue}_{name}"]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(self._translate), pymongo.timeout(self._timeout):
            yield

    def _translate(self, error: Exception) -> Exception | None:
        known = translate(error, self._host)
        return known.error(uncertain=known.uncertain) if isinstance(known, Unanswered) else known

    def take_lock(self) -> bool:
        """Take the document if it is free or has expired by the server's clock."""
        free = {"_id": LOCK, "$expr": {"$lte": ["$until", "$$NOW"]}}
        with self._translated():
            with suppress(DuplicateKeyError):
                self._meta.insert_one({"_id": LOCK, "until": None})
            return self._held(free)

    def _held(self, lock: Document) -> bool:
        until = {"$add": ["$$NOW", LOCK_SECONDS * 1000]}
        taken = self._meta.update_one(lock, [{"$set": {"holder": self._token, "until": until}}])
        return bool(taken.matched_count)

    def renew_lock(self) -> bool:
        """Let the document expire later."""
        return self._held({"_id": LOCK, "holder": self._token})

    def free_lock(self) -> None:
        """Delete the document."""
        with self._translated():
            self._meta.delete_one({"_id": LOCK, "holder": self._token})

    def read(self) -> str | None:
        """Return the current revision, or None if the queue is not there."""
        with self._translated():
            found = self._meta.find_one({"_id": QUEUE})
        revision: str | None = None if found is None else found.get("revision")
        return revision

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Apply one step: collections and indexes first, then the document with the revision."""
        with self._translated():
            if revision is None and not stamp:
                self._remove()
                return
            if revision is None:
                self._meta.update_one({"_id": QUEUE}, {"$unset": {"revision": "", "serves": ""}})
                return
            if not stamp:
                self._create()
                found = self.read()
                if found is not None and revision is not None and revision < found:
                    self._end_pauses()
            self.keep_lock()
            self._meta.update_one({"_id": QUEUE}, self._record(revision, serves), upsert=True)

    def stored(self) -> dict[str, str | None] | None:
        """Return the settings that the queue stores, with its revision. None if the queue is not there."""
        with self._translated():
            found = self._meta.find_one({"_id": QUEUE})
        return None if found is None else {name: str(value) for name, value in found.items()}

    def configure(self, changes: Mapping[str, str], scripts: Sequence[str]) -> None:
        """Change settings of an existing queue, in its document."""
        with self._translated():
            self.keep_lock()
            self._meta.update_one({"_id": QUEUE}, {"$set": dict(changes)})

    def remains(self) -> bool:
        """Return whether a creation or a removal that was killed has left collections."""
        with self._translated():
            there = set(self._database.list_collection_names())
        return not there.isdisjoint(f"{self._queue}_{name}" for name in (GROUPS, MESSAGES, META))

    def _create(self, there: Sequence[str] | None = None) -> None:
        """Create the indexes, and the collections with them. With `there`, only indexes of these collections."""
        for name, indexes in INDEXES.items():
            if there is not None and f"{self._queue}_{name}" not in there:
                continue
            for index, fields, options in indexes:  # creating an index creates its collection too
                self.keep_lock()
                try:
                    self._collection(name).create_index(fields, name=index, **options)
                except DuplicateKeyError as error:
                    raise QueueDamaged(self._queue, self._duplicates(name)) from error

    def _duplicates(self, name: str) -> str:
        """Say which messages have the same dedup_id, so that the index which forbids it cannot be created."""
        groups = self._collection(name).aggregate(
            [
                {"$match": {"dedup_id": {"$exists": True}}},
                {"$group": {"_id": "$dedup_id", "seqs": {"$push": "$_id"}, "count": {"$sum": 1}}},
                {"$match": {"count": {"$gt": 1}}},
                {"$limit": SHOWN},
            ]
        )
        found = "; ".join(f"{group['_id']!r} is that of {sorted(group['seqs'], key=str)[:SHOWN]}" for group in groups)
        return (
            f"several messages in {self._queue}_{name} have one dedup_id, so the index on it cannot be created "
            f"({found}, by _id): delete those that are too many, or unset their dedup_id, and migrate again"
        )

    def _end_pauses(self) -> None:
        """Resume all groups and the queue, since clients of an older revision cannot."""
        self._collection(GROUPS).delete_one({"_id": WHOLE_QUEUE})
        self._collection(GROUPS).update_many({"priority": {"$in": PAUSED}}, {"$inc": {"priority": BEHIND}})

    def _record(self, revision: str, serves: str | None) -> Document:
        # if the counter was lost, the next seq must be larger than all used ones
        return self._choices(revision, serves) | {"$max": {"seq": self._highest()}}

    def _highest(self) -> Int64:
        """Return the largest seq in use, 0 if there is none."""
        numbers = {"_id": {"$type": "number"}}
        top = self._collection(MESSAGES).find_one(numbers, ("_id",), sort=[("_id", -1)])
        return Int64(top["_id"] if top else 0)

    def repair(self) -> None:
        """Repair what claims and publishes cannot repair: indexes, the queue's document, the priorities of groups."""
        with self._translated():
            found = self._meta.find_one({"_id": QUEUE})
            if found is None or not found.get("revision"):
                return
            self._create(self._database.list_collection_names())
            seq, highest = number(found, "seq"), self._highest()
            repairs: Document = {}
            if seq is None or seq < highest:
                repairs["seq"] = highest
            if not is_head_start(found.get("head_start", DEFAULT_HEAD_START)):
                repairs["head_start"] = DEFAULT_HEAD_START
            for field, value in repairs.items():
                self._meta.update_one({"_id": QUEUE, field: found.get(field)}, {"$set": {field: value}})
            for group in self._collection(GROUPS).find(LOST):
                head = self._collection(MESSAGES).find_one({"group_id": group["_id"]}, sort=[("_id", 1)]) or {}
                unchanged = {"_id": group["_id"], "priority": group.get("priority")}
                self._collection(GROUPS).update_one(unchanged, {"$set": {"priority": number(head, "priority") or 0}})

    def _choices(self, revision: str, serves: str | None) -> Document:
        chosen = {"revision": revision, "serves": serves}
        if self._head_start is None:
            return {"$set": chosen, "$setOnInsert": {"head_start": DEFAULT_HEAD_START}}
        return {"$set": chosen | {"head_start": self._head_start}}

    def _remove(self) -> None:
        # delete the document first, so that no client can publish, and its collection last, since that has the lock
        self._meta.delete_one({"_id": QUEUE})
        for name in (GROUPS, MESSAGES, META):
            self._collection(name).drop()

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return a script for mongosh."""
        lines = [f"db = db.getSiblingDB({json.dumps(self._database.name)});"]
        if revision is None:
            lines += [f"db.{self._queue}_{name}.drop();" for name in (GROUPS, MESSAGES, META)]
            return "\n".join(lines) + "\n"
        for name, indexes in INDEXES.items():
            for index, fields, options in indexes:
                keys, choices = json.dumps(dict(fields)), json.dumps({"name": index, **options})
                lines.append(f"db.{self._queue}_{name}.createIndex({keys}, {choices});")
        if revision < CLIENT_REVISION:
            lines += self._end_pauses_offline(revision)
        change = self._choices(revision, serves)
        change["$max"] = {"seq": "NumberLong(0)"}
        options = {"upsert": True, "writeConcern": {"w": "majority"}}
        update = f'{{"_id": "{QUEUE}"}}, {json.dumps(change)}, {json.dumps(options)}'
        lines.append(f"db.{self._queue}_{META}.updateOne({update});".replace('"NumberLong(0)"', "NumberLong(0)"))
        return "\n".join(lines) + "\n"

    def _end_pauses_offline(self, revision: str) -> list[str]:
        groups, there = f"db.{self._queue}_{GROUPS}", f'db.{self._queue}_{META}.findOne({{"_id": "{QUEUE}"}})'
        return [
            f'if ((({there} || {{}}).revision || "") > "{revision}") {{',
            f'  {groups}.deleteOne({{"_id": "{WHOLE_QUEUE}"}});',
            f'  {groups}.updateMany({{"priority": {{"$in": {list(PAUSED)}}}}}, {{"$inc": {{"priority": {BEHIND}}}}});',
            "}",
        ]

    def close(self) -> None:
        """Close the connections."""
        with pymongo.timeout(1.0):
            self._client.close()
