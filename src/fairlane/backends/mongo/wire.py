"""The requests of the MongoDB backend. Each concerns one collection and takes one round trip.

Every write changes a single document, which MongoDB does atomically on every deployment, with or without shards:
https://www.mongodb.com/docs/manual/core/write-operations-atomicity/. No transactions or change streams are used.

Programs use the functions below instead of yielding requests, since these functions declare the types of the answers:
`group = yield from find_one(GROUPS, {"_id": "g"})`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeAlias

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection

from fairlane.backends.shared.retry import Unanswered
from fairlane.program import Program, ResultT, Sleep

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

META = "meta"
GROUPS = "groups"
MESSAGES = "messages"

QUEUE = "queue"
"""The `_id` of the document in META with the queue's revision, its settings and the last seq."""

WHOLE_QUEUE = ""
"""The `_id` of the document in GROUPS that is there while the whole queue is paused. No group has this id."""

Document: TypeAlias = dict[str, Any]
Filter: TypeAlias = Mapping[str, Any]
Sort: TypeAlias = Sequence[tuple[str, int]]
Change: TypeAlias = Filter | Sequence[Filter]
AnyCollection: TypeAlias = Collection[Document] | AsyncCollection[Document]

HEAD: Sort = (("_id", 1),)
LINE: Sort = (("ready_at", 1),)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The answer to a write that a unique index refused (code 11000); `field` is the first field of that index."""

    field: str


@dataclass(slots=True)
class _Request:
    """One operation on one collection.

    Attributes:
        ends: the deadline of its call, by time.monotonic(). The executor sets it for the first request of a call.
        changes: whether it may change the collection.
    """

    collection: str
    ends: float | None = field(default=None, init=False, compare=False, repr=False)
    changes: ClassVar[bool] = False


@dataclass(slots=True)
class FindOne(_Request):
    """Read one document."""

    filter: Filter
    sort: Sort | None = None
    fields: tuple[str, ...] | None = None

    def send(self, collection: AnyCollection) -> object:
        return collection.find_one(self.filter, self.fields, sort=self.sort and list(self.sort))


@dataclass(slots=True)
class Find(_Request):
    """Read documents in an order."""

    filter: Filter
    sort: Sort
    limit: int

    def send(self, collection: AnyCollection) -> object:
        return collection.find(self.filter, sort=list(self.sort), limit=self.limit).to_list()


@dataclass(slots=True)
class Update(_Request):
    """Find and update one document. The answer is the document before the change or, with `after`, after it."""

    changes: ClassVar[bool] = True
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


@dataclass(slots=True)
class Insert(_Request):
    """Add one document."""

    changes: ClassVar[bool] = True
    document: Document

    def send(self, collection: AnyCollection) -> object:
        return collection.insert_one(self.document)


@dataclass(slots=True)
class Delete(_Request):
    """Delete one document."""

    changes: ClassVar[bool] = True
    filter: Filter

    def send(self, collection: AnyCollection) -> object:
        return collection.delete_one(self.filter)


@dataclass(slots=True)
class DeleteMany(_Request):
    """Delete documents. The server deletes one after the other, and others can see it in between."""

    changes: ClassVar[bool] = True
    filter: Filter

    def send(self, collection: AnyCollection) -> object:
        return collection.delete_many(self.filter)


@dataclass(slots=True)
class Aggregate(_Request):
    """Read through a pipeline."""

    pipeline: Sequence[Filter]

    def send(self, collection: AnyCollection) -> object:
        return collection.aggregate(list(self.pipeline))


Request: TypeAlias = FindOne | Find | Update | Insert | Delete | DeleteMany | Aggregate
Answer: TypeAlias = Document | list[Document] | Duplicate | int | None
Steps: TypeAlias = Program[Request, Answer, ResultT]
"""A program of this backend. The parameter is the type of its result."""


Arguments = ParamSpec("Arguments")


def one_call(method: Callable[Arguments, Steps[ResultT]]) -> Callable[Arguments, Steps[ResultT]]:
    """Give all requests of a call one deadline, and let its error say whether the call may have been carried out."""

    @wraps(method)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Steps[ResultT]:
        return _together(method(*args, **kwargs))

    return called


def _together(program: Steps[ResultT]) -> Steps[ResultT]:
    ends: float | None = None  # the executor says so with the first request
    changed = False
    try:
        request = next(program)
        while True:
            if isinstance(request, Sleep):
                yield request
                request = program.send(None)
                continue
            request.ends = ends
            counts = request.changes and request.collection != META  # a seq that was drawn but not used does no harm
            try:
                answer = yield request
            except Unanswered as failure:
                known = failure.error(uncertain=changed or (counts and failure.uncertain))
                known.__cause__ = failure.__cause__
                request = program.throw(known)
            except BaseException as error:
                request = program.throw(error)
            else:
                ends, changed = request.ends, changed or counts
                request = program.send(answer)
    except StopIteration as stop:
        result: ResultT = stop.value
        return result


def number(document: Document, field: str) -> int | None:
    """Return a whole number of a document; None if it is missing or was changed to another type by hand."""
    value = document.get(field)
    if isinstance(value, float) and value.is_integer():  # the old shell writes all numbers as floats
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def moment(document: Document, field: str) -> datetime | None:
    """Return a time of a document; None if it is missing or was changed to another type by hand."""
    value = document.get(field)
    return value if isinstance(value, datetime) else None


def find_one(
    collection: str, filter_: Filter, sort: Sort | None = None, fields: tuple[str, ...] | None = None
) -> Steps[Document | None]:
    """Return the first document that matches the filter, or None if there is none."""
    answer = yield FindOne(collection, filter_, sort, fields)
    return answer if isinstance(answer, dict) else None


def find(collection: str, filter_: Filter, sort: Sort, limit: int) -> Steps[list[Document]]:
    """Return the documents that match the filter, in the order of `sort`."""
    answer = yield Find(collection, filter_, sort, limit)
    return answer if isinstance(answer, list) else []


def aggregate(collection: str, *stages: Filter) -> Steps[list[Document]]:
    """Return the result of a pipeline."""
    answer = yield Aggregate(collection, stages)
    return answer if isinstance(answer, list) else []


def update(
    collection: str, filter_: Filter, change: Change, *, sort: Sort | None = None, after: bool = False
) -> Steps[Document | None]:
    """Change the first document that matches; return it before or `after` the change, or None if none matches."""
    answer = yield Update(collection, filter_, change, sort, False, after)
    return answer if isinstance(answer, dict) else None


def upsert(collection: str, filter_: Filter, change: Change) -> Steps[Document | None]:
    """Change the document that matches and return it as it was before; if none matches, add it and return None."""
    while True:
        answer = yield Update(collection, filter_, change, upsert=True)
        if not isinstance(answer, Duplicate):
            return answer if isinstance(answer, dict) else None
        # another client has added it at the same time: change that document


def insert(collection: str, document: Document) -> Steps[Duplicate | None]:
    """Add a document; return the violated index, or None if the document was added."""
    answer = yield Insert(collection, document)
    return answer if isinstance(answer, Duplicate) else None


def delete(collection: str, filter_: Filter) -> Steps[bool]:
    """Delete the document that matches the filter; return whether there was one."""
    return bool((yield Delete(collection, filter_)))


def delete_many(collection: str, filter_: Filter) -> Steps[int]:
    """Delete the documents that match the filter; return how many there were."""
    answer = yield DeleteMany(collection, filter_)
    return answer if isinstance(answer, int) else 0
