"""The programs that publish into a queue in MongoDB. The module `core` describes the protocol."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from pymongo.errors import OperationFailure

from fairlane.backends.mongo.wire import (
    EPOCH,
    GROUPS,
    MESSAGES,
    META,
    QUEUE,
    Document,
    Filter,
    Steps,
    delete,
    find_one,
    insert,
    moment,
    number,
    one_call,
    update,
    upsert,
)
from fairlane.contract import ALWAYS, CLIENT_REVISION, DEFAULT_HEAD_START, MAX_PRIORITY, check_head_start
from fairlane.errors import QueueDamaged, SchemaNotReady
from fairlane.program import Sleep

PRIORITIES = tuple(range(MAX_PRIORITY + 1))
BEHIND = len(PRIORITIES)
PAUSED = tuple(priority - BEHIND for priority in PRIORITIES)
"""The priorities of paused groups, for which no claim searches. So a paused group keeps its priority and its place."""

LOST: Filter = {"priority": {"$nin": PRIORITIES + PAUSED}}
"""Groups that no claim finds, since their priority was changed by hand."""

TYPE_MISMATCH = 14
TICK = 0.001_1
"""Seconds. A little more than the millisecond of the server's clock, since a client's clock may run faster."""

PLACE = ("group_id", "priority", "published_at")
"""The fields of a message that determine its group's place in line, besides its seq."""


class Publishing:
    """The programs that add messages and put groups in line, a part of the core."""

    queue: str

    @one_call
    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Steps[int]:
        while True:
            drawn = yield from self.draw()
            seq: int = drawn["seq"]
            message: Document = {
                "_id": seq,
                "group_id": group_id,
                "event": payload,
                "priority": priority,
                "published_at": drawn["at"],
            }
            if dedup_id is not None:
                message["dedup_id"] = dedup_id
            clash = yield from insert(MESSAGES, message)
            if clash is None:
                yield from self.put_in_line(message, drawn)
                return seq
            if clash.field == "dedup_id":
                first = yield from self._first_with(dedup_id, drawn)
                if first is not None:
                    return first
            # otherwise the seq is in use: the counter was set back, by hand or by a failover, so draw the next one

    def draw(self) -> Steps[Document]:
        """Draw a new seq, and read the server's time and the queue's settings.

        Raises:
            QueueDamaged: the document with the seq and the settings was changed by hand. A migration repairs it.
        """
        change = {"$inc": {"seq": 1}, "$currentDate": {"at": True}}
        try:
            drawn = yield from update(META, {"_id": QUEUE}, change, after=True)
        except OperationFailure as error:
            if error.code != TYPE_MISMATCH:
                raise
            raise self._damaged("seq") from error
        if drawn is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION)
        seq = number(drawn, "seq")
        if seq is None:
            raise self._damaged("seq")
        if not is_head_start(drawn.get("head_start", DEFAULT_HEAD_START)):
            raise self._damaged("head_start")
        return drawn | {"seq": seq}

    def _damaged(self, field: str) -> QueueDamaged:
        return QueueDamaged(self.queue, self.wrong(field, QUEUE, META))

    def wrong(self, field: str, document: object, collection: str) -> str:
        """Return the message for a wrong value that a migration repairs."""
        where = f"{field} of the document {document!r} in {self.queue}_{collection}"
        return f"{where} has a wrong value: run `fairlane migrate --queue {self.queue}`"

    def _first_with(self, dedup_id: str | None, drawn: Document) -> Steps[int | None]:
        """Return the seq of the message with this dedup id, or None if it is finished and the id is free again."""
        first = yield from find_one(MESSAGES, {"dedup_id": dedup_id}, fields=PLACE)
        if first is None:
            return None
        # its publisher may have stopped before this step
        before = yield from self.put_in_line(first, drawn)
        if before is not None and before.get("acked") == first["_id"]:
            yield from delete(MESSAGES, {"_id": first["_id"]})  # an ack stopped before it deleted the message
            return None
        return int(first["_id"])

    def put_in_line(self, message: Document, drawn: Document) -> Steps[Document | None]:
        """Put a message's group in line if it is not there, and store `drawn`'s seq in it; return the group as before.

        The place of a group that becomes non-empty is the time of its message minus the queue's head start.
        """
        started = time.monotonic()
        group_id, stamp, seq = message["group_id"], drawn["seq"], message["_id"]
        priority, ready_at = number(message, "priority") or 0, place_of_new(message, drawn)
        placed = False
        free = {"token": None, "worker_id": None, "leased": None, "attempts": 0, "acked": None}
        new = {"priority": priority, "ready_at": ready_at} | free
        change = {"$setOnInsert": new, "$set": {"touched": stamp}}
        before = yield from upsert(GROUPS, {"_id": group_id}, change)
        if before is None:
            placed = True
            # the message may have been acked already, through an earlier document of the group
            yield from self.drop_if_empty(group_id, touched=stamp, acked=None)
        elif number(before, "priority") not in PRIORITIES + PAUSED:  # changed by hand, so that no claim finds the group
            yield from update(
                GROUPS, {"_id": group_id, "priority": before.get("priority")}, {"$set": {"priority": priority}}
            )
        elif before.get("token") is None and before.get("acked") == before.get("touched"):
            # an ack has not dropped this group yet, or has stopped; without other messages it counts as a new group
            others = {"group_id": group_id, "_id": {"$nin": [seq, before.get("acked")]}}
            if (yield from find_one(MESSAGES, others, fields=("_id",))) is None:
                unserved = {"_id": group_id, "token": None, "leased": None, "touched": stamp}
                # the server decides whether it is paused, since that may have changed after `before`
                as_paused = {"$cond": [{"$lte": ["$priority", -1]}, priority - BEHIND, priority]}
                place = {"priority": as_paused, "ready_at": ready_at}
                yield from update(GROUPS, unserved, [{"$set": place}])
                placed = True
        if placed:
            yield from after_tick(started)
        return before

    def drop_if_empty(self, group_id: str, *, touched: int | None, acked: int | None) -> Steps[bool]:
        """Drop a free group if it has no messages and did not change since before the search for messages.

        If it is paused, it stays, as if it never had a message.
        """
        if (yield from find_one(MESSAGES, {"group_id": group_id}, fields=("_id",))) is not None:
            return False
        unchanged = {"_id": group_id, "token": None, "touched": touched, "acked": acked}
        if (yield from delete(GROUPS, unchanged | {"priority": {"$nin": PAUSED}})):
            return True
        new = {"leased": None, "attempts": 0, "acked": None, "touched": None}
        yield from update(GROUPS, unchanged | {"priority": {"$in": PAUSED}}, {"$set": new})
        return False


def place_of_new(message: Document, drawn: Document) -> datetime:
    """Return the place in line of a group that becomes non-empty with this message.

    With the head start `always`, the place is the seq in milliseconds after the epoch, before all other places.
    """
    head_start = drawn.get("head_start", DEFAULT_HEAD_START)
    if head_start == ALWAYS:
        return EPOCH + timedelta(milliseconds=message["_id"])
    published_at: datetime = moment(message, "published_at") or drawn["at"]
    return published_at - timedelta(seconds=float(head_start))


def is_head_start(value: object) -> bool:
    """Return whether a value is a head start as migrations write it."""
    try:
        return isinstance(value, str) and check_head_start(value) == value
    except ValueError:
        return False


def after_tick(since: float) -> Steps[None]:
    """Wait until the server's clock has advanced after `since`, a time after which it gave a place in line."""
    rest = since + TICK - time.monotonic()
    if rest > 0:
        yield Sleep(rest)
