"""What the programs of the MongoDB backend ask for: one document, one collection, one round trip each.

Every write is a single-document operation, which MongoDB applies as a whole on any deployment, sharded or alone:
https://www.mongodb.com/docs/manual/core/write-operations-atomicity/. No transaction and no change stream is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

META = "meta"
GROUPS = "groups"
MESSAGES = "messages"

QUEUE = "queue"
"""The `_id` of the document in META that holds the queue's revision, its choices and the counter of seqs."""

Document = dict[str, Any]
Filter = Mapping[str, Any]
Sort = Sequence[tuple[str, int]]

HEAD: Sort = (("_id", 1),)
LINE: Sort = (("ready_at", 1),)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The answer to a write that a unique index refused (code 11000); `field` is the first field of that index."""

    field: str


@dataclass(frozen=True, slots=True)
class FindOne:
    """Read one document; the answer is it, or None."""

    collection: str
    filter: Filter
    sort: Sort | None = None
    fields: tuple[str, ...] | None = None

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        return collection.find_one(self.filter, self.fields, sort=self.sort and list(self.sort))

    def answer(self, raw: Any) -> Document | None:
        """Return what the program is told."""
        found: Document | None = raw
        return found


@dataclass(frozen=True, slots=True)
class Find:
    """Read documents in an order; the answer is a list of them."""

    collection: str
    filter: Filter
    sort: Sort
    limit: int

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        return collection.find(self.filter, sort=list(self.sort), limit=self.limit).to_list()

    def answer(self, raw: Any) -> list[Document]:
        """Return what the program is told."""
        return list(raw)


@dataclass(frozen=True, slots=True)
class Update:
    """Find and update one document; the answer is it, as it was before (or is `after`), None or a `Duplicate`."""

    collection: str
    filter: Filter
    update: Filter | Sequence[Filter]
    sort: Sort | None = None
    upsert: bool = False
    after: bool = False

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        update = self.update if isinstance(self.update, Mapping) else list(self.update)
        sort = self.sort and list(self.sort)
        return collection.find_one_and_update(
            self.filter, update, sort=sort, upsert=self.upsert, return_document=self.after
        )

    def answer(self, raw: Any) -> Document | None:
        """Return what the program is told."""
        found: Document | None = raw
        return found


@dataclass(frozen=True, slots=True)
class Insert:
    """Add one document; the answer is None or a `Duplicate`."""

    collection: str
    document: Filter

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        return collection.insert_one(self.document)

    def answer(self, raw: Any) -> None:
        """Return what the program is told."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one document; the answer is whether there was one."""

    collection: str
    filter: Filter

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        return collection.delete_one(self.filter)

    def answer(self, raw: Any) -> bool:
        """Return what the program is told."""
        return bool(raw.deleted_count)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Read through a pipeline; the answer is a list of documents."""

    collection: str
    pipeline: Sequence[Filter]

    def send(self, collection: Any) -> Any:
        """Give the request to a collection of either client."""
        return collection.aggregate(list(self.pipeline))

    def answer(self, raw: Any) -> list[Document]:
        """Return what the program is told."""
        return list(raw)


Request = FindOne | Find | Update | Insert | Delete | Aggregate
