"""The programs that inspect a queue in MongoDB.

One call reads its figures in two or three requests, so on a busy queue they may be from slightly different times.
"""

from __future__ import annotations

from datetime import datetime

from fairlane.backends.mongo.publishing import LOST, PRIORITIES
from fairlane.backends.mongo.wire import (
    EPOCH,
    GROUPS,
    HEAD,
    MESSAGES,
    META,
    QUEUE,
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
        figures = {
            "_id": None,
            "groups": {"$sum": 1},
            "ready": _count(_READY),
            "in_flight": _count(_WAITS, {"$ne": ["$token", None]}),
            "parked": _count(_WAITS, {"$eq": ["$token", None]}),
        }
        groups = yield from aggregate(GROUPS, {"$group": figures})
        total = {"_id": None, "messages": {"$sum": 1}, "oldest": {"$min": "$published_at"}}
        messages = yield from aggregate(MESSAGES, {"$group": total}, _WITH_NOW)
        if not groups and not messages:
            yield from self.check_there()
        found: Document = groups[0] if groups else {}
        return QueueStatus(
            queue=self.queue,
            groups=int(found.get("groups", 0)),
            ready=int(found.get("ready", 0)),
            in_flight=int(found.get("in_flight", 0)),
            parked=int(found.get("parked", 0)),
            messages=int(messages[0]["messages"]) if messages else 0,
            oldest_seconds=_age(messages[0], "oldest", messages[0]["now"]) if messages else None,
        )

    @one_call
    def group_status(self, limit: int) -> Steps[list[GroupStatus]]:
        # with a list of priorities, the index gives the order
        line = {"$match": {"priority": {"$in": PRIORITIES}}}
        groups = yield from aggregate(GROUPS, line, {"$sort": {"ready_at": 1}}, {"$limit": limit}, _WITH_NOW)
        if len(groups) < limit:  # also groups that no claim finds, since their priority was changed by hand
            groups += yield from aggregate(GROUPS, {"$match": LOST}, {"$limit": limit - len(groups)}, _WITH_NOW)
        if not groups:
            yield from self.check_there()
            return []
        theirs = {"$match": {"group_id": {"$in": [group["_id"] for group in groups]}}}
        figures = {"_id": "$group_id", "depth": {"$sum": 1}, "oldest": {"$min": "$published_at"}}
        backlogs = {row["_id"]: row for row in (yield from aggregate(MESSAGES, theirs, {"$group": figures}))}
        return [_group(group, backlogs.get(group["_id"])) for group in groups]

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
    if ready_at is None or ready_at <= group["now"]:  # MongoDB sorts null before times, so such a group is claimable
        return "ready"
    return "parked" if group.get("token") is None else "in_flight"


def _attempts(group: Document) -> int:
    # a claim increases `attempts` before it has read the message
    return 0 if number(group, "leased") is None else number(group, "attempts") or 0


def _group(group: Document, backlog: Document | None) -> GroupStatus:
    return GroupStatus(
        group_id=group["_id"],
        state=_state(group),
        priority=number(group, "priority") or 0,
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
