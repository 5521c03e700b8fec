"""What the programs of the MongoDB backend ask for: one document, one collection, one round trip each.

Every write is a single-document operation, which MongoDB applies as a whole on any deployment, sharded or alone:
https://www.mongodb.com/docs/manual/core/write-operations-atomicity/. No transaction and no change stream is used.

Programs do not yield these requests themselves. They use the functions below, which say what each request is answered
with: `group = yield from find_one(GROUPS, {"_id": "g"})`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection

from fairlane.program import Program, ResultT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

META = "meta"
GROUPS = "groups"
MESSAGES = "messages"

QUEUE = "queue"
"""The `_id` of the document in META that holds the queue's revision, its choices and the counter of seqs."""

Document: TypeAlias = dict[str, Any]
Filter: TypeAlias = Mapping[str, Any]
Sort: TypeAlias = Sequence[tuple[str, int]]
Change: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
AnyCollection: TypeAlias = Collection[Document] | AsyncCollection[Document]

HEAD: Sort = (("_id", 1),)
LINE: Sort = (("ready_at", 1),)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The answer to a write that a unique index refused (code 11000); `field` is the first field of that index."""

    field: str


@dataclass(frozen=True, slots=True)
class FindOne:
    """Read one document."""

    collection: str
    filter: Filter
    sort: Sort | None = None
    fields: tuple[str, ...] | None = None

    def send(self, collection: AnyCollection) -> object:
        return collection.find_one(self.filter, self.fields, sort=self.sort and list(self.sort))


@dataclass(frozen=True, slots=True)
class Find:
    """Read documents in an order."""

    collection: str
    filter: Filter
    sort: Sort
    limit: int

    def send(self, collection: AnyCollection) -> object:
        return collection.find(self.filter, sort=list(self.sort), limit=self.limit).to_list()


@dataclass(frozen=True, slots=True)
class Update:
    """Find and update one document; the answer is it, as it was before or as it is `after`."""

    collection: str
    filter: Filter
    update: Change
    sort: Sort | None = None
    upsert: bool = False
    after: bool = False

    def send(self, collection: AnyCollection) -> object:
        return collection.find_one_and_update(
            self.filter,
            self.update if isinstance(self.update, Mapping) else list(self.update),
            sort=self.sort and list(self.sort),
            upsert=self.upsert,
            return_document=self.after,
        )


@dataclass(frozen=True, slots=True)
class Insert:
    """Add one document."""

    collection: str
    document: Document

    def send(self, collection: AnyCollection) -> object:
        return collection.insert_one(self.document)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one document."""

    collection: str
    filter: Filter

    def send(self, collection: AnyCollection) -> object:
        return collection.delete_one(self.filter)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Read through a pipeline."""

    collection: str
    pipeline: Sequence[Filter]

    def send(self, collection: AnyCollection) -> object:
        return collection.aggregate(list(self.pipeline))


Request: TypeAlias = FindOne | Find | Update | Insert | Delete | Aggregate
Answer: TypeAlias = Document | list[Document] | Duplicate | bool | None
Steps: TypeAlias = Program[Request, Answer, ResultT]
"""A program of this backend, by what it returns."""


def number(document: Document, field: str) -> int | None:
    """Return a whole number of a document; None if it is missing, or something else since somebody changed it."""
    value = document.get(field)
    if isinstance(value, float) and value.is_integer():  # the old shell writes all numbers like this
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def moment(document: Document, field: str) -> datetime | None:
    """Return a time of a document; None if it is missing, or something else since somebody changed it."""
    value = document.get(field)
    return value if isinstance(value, datetime) else None


def find_one(
    collection: str, filter_: Filter, sort: Sort | None = None, fields: tuple[str, ...] | None = None
) -> Steps[Document | None]:
    """Return the first document that fits, None if there is none."""
    answer = yield FindOne(collection, filter_, sort, fields)
    return answer if isinstance(answer, dict) else None


def find(collection: str, filter_: Filter, sort: Sort, limit: int) -> Steps[list[Document]]:
    """Return the documents that fit, in an order."""
    answer = yield Find(collection, filter_, sort, limit)
    return answer if isinstance(answer, list) else []


def aggregate(collection: str, *stages: Filter) -> Steps[list[Document]]:
    """Return what a pipeline makes of a collection."""
    answer = yield Aggregate(collection, stages)
    return answer if isinstance(answer, list) else []


def update(
    collection: str, filter_: Filter, change: Change, *, sort: Sort | None = None, after: bool = False
) -> Steps[Document | None]:
    """Change the first document that fits; return it as it was before or is `after`, None if none fits."""
    answer = yield Update(collection, filter_, change, sort, False, after)
    return answer if isinstance(answer, dict) else None


def upsert(collection: str, filter_: Filter, change: Change) -> Steps[Document | None]:
    """Change the document that fits and return it as it was before; add it and return None if none fits."""
    while True:
        answer = yield Update(collection, filter_, change, upsert=True)
        if not isinstance(answer, Duplicate):
            return answer if isinstance(answer, dict) else None
        # somebody else has added it at this moment: change that one


def insert(collection: str, document: Document) -> Steps[Duplicate | None]:
    """Add a document; return what stood in the way, None if it was added."""
    answer = yield Insert(collection, document)
    return answer if isinstance(answer, Duplicate) else None


def delete(collection: str, filter_: Filter) -> Steps[bool]:
    """Delete the document that fits; return whether there was one."""
    return (yield Delete(collection, filter_)) is True
