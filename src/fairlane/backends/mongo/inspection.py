"""The programs that inspect a queue in MongoDB.

One call reads its figures in two or three requests, so on a busy queue they may be from slightly different times.
"""

from __future__ import annotations

from datetime import datetime

from fairlane.backends.mongo.publishing import BEHIND, LOST, PAUSED, PRIORITIES
from fairlane.backends.mongo.wire import (
    EPOCH,
    GROUPS,
    HEAD,
    LINE,
    MESSAGES,
    META,
    QUEUE,
    WHOLE_QUEUE,
    Document,
    Steps,
    aggregate,
    find,
    find_one,
    moment,
    number,
    one_call,
)
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from fairlane.model import GroupState, GroupStatus, MessageStatus, QueueStatus

_WITH_NOW: Document = {"$addFields": {"now": "$$NOW"}}
_READY: Document = {"$lte": ["$ready_at", "$$NOW"]}
_WAITS: Document = {"$gt": ["$ready_at", "$$NOW"]}


_IS_LEASED: Document = {"$ne": ["$token", None]}
_IS_GROUP: Document = {"$ne": ["$_id", WHOLE_QUEUE]}
_IS_PAUSED: Document = {"$in": ["$priority", PAUSED]}
_PAUSED: Document = {"priority": {"$in": PAUSED}}


def _not(condition: Document) -> Document:
    return {"$cond": [condition, False, True]}


def _count(*conditions: Document) -> Document:
    return {"$sum": {"$cond": [{"$and": list(conditions)}, 1, 0]}}


class Inspection:
    """The programs of `inspect`, a part of the core."""

    queue: str

    def check_there(self) -> Steps[None]:
        """Check that the queue exists, since an empty queue looks like a removed one.

        Raises:
            SchemaNotReady: it was removed.
        """
        if (yield from find_one(META, {"_id": QUEUE}, fields=("_id",))) is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION)

    @one_call
    def queue_status(self) -> Steps[QueueStatus]:
        in_flight = {"$and": [_WAITS, _IS_LEASED]}
        figures = {
            "_id": None,
            "groups": _count(_IS_GROUP),
            "ready": _count(_IS_GROUP, _READY, _not(_IS_PAUSED)),
            "in_flight": _count(in_flight),
            "parked": _count(_WAITS, _not(_IS_LEASED), _not(_IS_PAUSED)),
            "paused": _count(_IS_PAUSED, _not(in_flight)),
            "whole_queue": _count(_not(_IS_GROUP)),
        }
        groups = yield from aggregate(GROUPS, {"$group": figures})
        total = {"_id": None, "messages": {"$sum": 1}, "oldest": {"$min": "$published_at"}}
        messages = yield from aggregate(MESSAGES, {"$group": total}, _WITH_NOW)
        if not groups and not messages:
            yield from self.check_there()
        found: Document = groups[0] if groups else {}
        empty = (yield from self._paused_and_empty()) if found.get("paused") else 0
        return QueueStatus(
            queue=self.queue,
            groups=int(found.get("groups", 0)) - empty,
            ready=int(found.get("ready", 0)),
            in_flight=int(found.get("in_flight", 0)),
            parked=int(found.get("parked", 0)),
            paused=max(0, int(found.get("paused", 0)) - empty),
            is_paused=bool(found.get("whole_queue")),
            messages=int(messages[0]["messages"]) if messages else 0,
            oldest_seconds=_age(messages[0], "oldest", messages[0]["now"]) if messages else None,
        )

    def _paused_and_empty(self) -> Steps[int]:
        """Return how many paused groups have no messages."""
        paused = yield from aggregate(GROUPS, {"$match": _PAUSED}, {"$project": {"_id": 1}})
        theirs = {"$match": {"group_id": {"$in": [group["_id"] for group in paused]}}}
        filled = yield from aggregate(MESSAGES, theirs, {"$group": {"_id": "$group_id"}})
        return len(paused) - len(filled)

    @one_call
    def next_ready(self, min_priority: int, name: str | None) -> Steps[float | None]:
        first = yield from aggregate(
            GROUPS,
            {"$match": {"priority": {"$in": list(PRIORITIES)[min_priority:]}}},
            {"$sort": dict(LINE)},
            {"$limit": 1},
            _WITH_NOW,
        )
        if not first or first[0]["_id"] == WHOLE_QUEUE:
            return None  # nothing waits, or the queue is paused; the claim after the wait tells whether it is there
        ready_at, now = moment(first[0], "ready_at"), moment(first[0], "now")
        return None if ready_at is None or now is None else (ready_at - now).total_seconds()

    @one_call
    def group_status(self, limit: int) -> Steps[list[GroupStatus]]:
        # with a list of priorities, the index gives the order
        groups: list[Document] = []
        # the last ones are groups that no claim finds, since their priority was changed by hand
        in_line = {"priority": {"$in": PRIORITIES}, "_id": {"$ne": WHOLE_QUEUE}}
        for found in (in_line, _PAUSED, LOST):
            if len(groups) < limit:
                line = {"$match": found}, {"$sort": {"ready_at": 1}}, {"$limit": limit - len(groups)}
                groups += yield from aggregate(GROUPS, *line, _WITH_NOW)
        if not groups:
            yield from self.check_there()
            return []
        theirs = {"$match": {"group_id": {"$in": [group["_id"] for group in groups]}}}
        figures = {"_id": "$group_id", "depth": {"$sum": 1}, "oldest": {"$min": "$published_at"}}
        backlogs = {row["_id"]: row for row in (yield from aggregate(MESSAGES, theirs, {"$group": figures}))}
        rows = [_group(group, backlogs.get(group["_id"])) for group in groups]
        return sorted(rows, key=lambda row: row.state == "paused" and row.depth == 0)

    @one_call
    def message_status(self, group_id: str, limit: int) -> Steps[list[MessageStatus]]:
        found = yield from aggregate(GROUPS, {"$match": {"_id": group_id}}, {"$limit": 1}, _WITH_NOW)
        if not found:
            yield from self.check_there()
            return []
        group = found[0]
        leased = number(group, "leased")
        messages = yield from find(MESSAGES, {"group_id": group_id}, HEAD, limit)
        if leased is not None:
            # a delivered message is the head, even if messages with a smaller seq were inserted later
            first = next((item for item in messages if item["_id"] == leased), None)
            if first is None:
                first = yield from find_one(MESSAGES, {"_id": leased})
            rest = [item for item in messages if item["_id"] != leased]
            messages = ([first] if first is not None else []) + rest
        messages = [item for item in messages[:limit] if item["_id"] != group.get("acked")]
        return [_message(group, item, position) for position, item in enumerate(messages, 1)]


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())


def _age(document: Document, field: str, now: datetime) -> float | None:
    since = moment(document, field)
    return None if since is None else _seconds(since, now)


def _state(group: Document) -> GroupState:
    ready_at = moment(group, "ready_at")
    # MongoDB sorts null before times, so a group without a place is claimable
    waits = ready_at is not None and ready_at > group["now"]
    if waits and group.get("token") is not None:
        return "in_flight"
    if _is_paused(group):
        return "paused"
    return "parked" if waits else "ready"


def _is_paused(group: Document) -> bool:
    return number(group, "priority") in PAUSED


def _attempts(group: Document) -> int:
    # a claim increases `attempts` before it has read the message
    return 0 if number(group, "leased") is None else number(group, "attempts") or 0


def _group(group: Document, backlog: Document | None) -> GroupStatus:
    state = _state(group)
    if state == "paused" and backlog is None:
        return GroupStatus(group["_id"], state, 0, 0, None, None, 0, 0.0)
    return GroupStatus(
        group_id=group["_id"],
        state=state,
        priority=(number(group, "priority") or 0) + (BEHIND if _is_paused(group) else 0),
        depth=0 if backlog is None else int(backlog["depth"]),
        oldest_seconds=None if backlog is None else _age(backlog, "oldest", group["now"]),
        worker_id=group.get("worker_id"),
        attempts=_attempts(group),
        ready_in_seconds=_seconds(group["now"], moment(group, "ready_at") or group["now"]),
    )


def _message(group: Document, message: Document, position: int) -> MessageStatus:
    is_head = position == 1
    event: object = message.get("event")
    published_at = moment(message, "published_at") or EPOCH
    return MessageStatus(
        group_id=message["group_id"],
        seq=number(message, "_id") or 0,
        state="in_flight" if is_head and _state(group) == "in_flight" else "waiting",
        position=position,
        attempts=_attempts(group) if is_head else 0,
        dedup_id=message.get("dedup_id"),
        published_at=published_at,
        age_seconds=_seconds(published_at, group["now"]),
        event=event,
    )
