"""The part of MongoDB that the programs use, in memory, to try every order of their steps.

Documents are never changed in place, so a copy of the server is cheap. `test_interleavings.py` sends the same requests
to a real server and to this one, and compares the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlane.backends.mongo.wire import (
    GROUPS,
    MESSAGES,
    META,
    QUEUE,
    Aggregate,
    Delete,
    Document,
    Duplicate,
    Find,
    FindOne,
    Insert,
    Request,
    Update,
)
from fairlane.contract import CLIENT_REVISION

START = datetime(2026, 1, 1, tzinfo=UTC)
UNIQUE = {MESSAGES: "dedup_id"}


class FakeServer:
    """One queue. `now` stands still unless a test moves it."""

    def __init__(self, head_start: str = "1") -> None:
        self.now = START
        meta = {
            "_id": QUEUE,
            "revision": CLIENT_REVISION,
            "serves": "0001",
            "head_start": head_start,
            "seq": 0,
        }
        self.data: dict[str, dict[Any, Document]] = {META: {QUEUE: meta}, GROUPS: {}, MESSAGES: {}}

    def copy(self) -> FakeServer:
        made = object.__new__(FakeServer)
        made.now = self.now
        made.data = {name: dict(documents) for name, documents in self.data.items()}
        return made

    def key(self) -> tuple[Any, ...]:
        """A value that is equal for equal states only."""
        return (
            self.now,
            *(frozenset(tuple(document.items()) for document in part.values()) for part in self.data.values()),
        )

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def execute(self, request: Request) -> Any:
        """Carry out one request."""
        collection = self.data[request.collection]
        match request:
            case FindOne():
                found = self._sorted(self._matching(collection, request.filter), request.sort)
                return found[0] if found else None
            case Find():
                return self._sorted(self._matching(collection, request.filter), request.sort)[: request.limit]
            case Insert():
                return self._insert(request.collection, dict(request.document))
            case Delete():
                found = self._matching(collection, request.filter)
                if found:
                    del collection[found[0]["_id"]]
                return bool(found)
            case Update():
                return self._update(request)
            case Aggregate():
                return self._aggregate(request)

    def _insert(self, name: str, document: Document) -> Duplicate | None:
        field = UNIQUE.get(name)
        if document["_id"] in self.data[name]:
            return Duplicate("_id")
        if field in document and any(
            document[field] == other[field] for other in self.data[name].values() if field in other
        ):
            return Duplicate(str(field))
        self.data[name][document["_id"]] = document
        return None

    def _update(self, request: Update) -> Document | Duplicate | None:
        collection = self.data[request.collection]
        found = self._sorted(self._matching(collection, request.filter), request.sort)
        if not found and not request.upsert:
            return None
        before = found[0] if found else None
        after = dict(before or {"_id": request.filter["_id"]})
        if not isinstance(request.update, Mapping):
            (stage,) = request.update
            after |= {field: self._value(value, before or after) for field, value in stage["$set"].items()}
        else:
            for operator, changes in request.update.items():
                for field, value in changes.items():
                    self._change(after, operator, field, value, inserted=before is None)
        collection[after["_id"]] = after
        return after if request.after else before

    def _change(self, document: Document, operator: str, field: str, value: Any, *, inserted: bool) -> None:
        match operator:
            case "$set":
                document[field] = value
            case "$setOnInsert":
                if inserted:
                    document[field] = value
            case "$inc":
                document[field] = document.get(field, 0) + value
            case "$currentDate":
                document[field] = self.now
            case _:
                raise NotImplementedError(operator)

    def _aggregate(self, request: Aggregate) -> list[Document]:
        found = list(self.data[request.collection].values())
        for stage in request.pipeline:
            ((operator, value),) = stage.items()
            match operator:
                case "$match":
                    found = self._matching({document["_id"]: document for document in found}, value)
                case "$sort":
                    found = self._sorted(found, list(value.items()))
                case "$limit":
                    found = found[:value]
                case "$project":
                    fields = {"_id": "$_id", **value}
                    found = [
                        {field: self._value(item, document) for field, item in fields.items()} for document in found
                    ]
                case _:
                    raise NotImplementedError(operator)
        return found

    @staticmethod
    def _sorted(found: list[Document], order: Any) -> list[Document]:
        for field, direction in reversed(order or ()):
            found = sorted(found, key=lambda document: document[field], reverse=direction < 0)
        return found

    def _matching(self, collection: dict[Any, Document], wanted: Any) -> list[Document]:
        if isinstance(wanted.get("_id"), int | str):
            one = collection.get(wanted["_id"])
            candidates = [one] if one is not None else []
        else:
            candidates = list(collection.values())
        return [document for document in candidates if self._matches(document, wanted)]

    def _matches(self, document: Document, wanted: Any) -> bool:
        for field, value in wanted.items():
            if field == "$expr":
                if not self._value(value, document):
                    return False
            elif isinstance(value, dict):
                if not all(self._compares(document.get(field), *each) for each in value.items()):
                    return False
            elif document.get(field) != value:
                return False
        return True

    @staticmethod
    def _compares(found: Any, operator: str, values: Any) -> bool:
        if operator == "$type":
            assert values == "string"
            return isinstance(found, str)
        return bool((found in values) == {"$in": True, "$nin": False}[operator])

    def _value(self, expression: Any, document: Document) -> Any:
        if expression == "$$NOW":
            return self.now
        if isinstance(expression, str) and expression.startswith("$"):
            return document.get(expression[1:])
        if not isinstance(expression, dict):
            return expression
        ((operator, operands),) = expression.items()
        if operator == "$literal":
            return operands
        if operator == "$isNumber":
            return isinstance(self._value(operands, document), int | float)
        if operator == "$cond":
            condition, then, otherwise = operands
            return self._value(then if self._value(condition, document) else otherwise, document)
        first, second = (self._value(operand, document) for operand in operands)
        if operator == "$lte":
            return first <= second
        if operator == "$ne":
            return first != second
        assert operator == "$add"
        return first + (timedelta(milliseconds=second) if isinstance(first, datetime) else second)
