"""Publishing to a queue in MongoDB; `core` tells the whole protocol."""

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
LOST: Filter = {"priority": {"$nin": PRIORITIES}}
"""Groups that no claim finds, since somebody has changed their priority."""

TYPE_MISMATCH = 14
TICK = 0.001_1
"""A little more than the millisecond of the server's clock, for clients whose own clock runs fast."""

PLACE = ("group_id", "priority", "published_at")
"""What a message says about its group's place in line, beside its seq."""


class Publishing:
    """The programs that add messages and put groups in line, a part of the core."""

    queue: str
    ends: float | None

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
            # else the counter was set back, by hand or by a failover: draw the next

    def draw(self) -> Steps[Document]:
        """Draw a number that nobody else has, together with the server's time and the queue's choices.

        Raises:
            QueueDamaged: somebody has changed the document that holds them; a migration puts it right.
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
        """Say what a migration puts right."""
        where = f"{field} of the document {document!r} in {self.queue}_{collection}"
        return f"{where} is not what it must be: run `fairlane migrate --queue {self.queue}`"

    def _first_with(self, dedup_id: str | None, drawn: Document) -> Steps[int | None]:
        """Return the seq of the message with this id; None if it is finished, so that the id is free again."""
        first = yield from find_one(MESSAGES, {"dedup_id": dedup_id}, fields=PLACE)
        if first is None:
            return None
        # its publisher may have stopped half-way
        before = yield from self.put_in_line(first, drawn)
        if before is not None and before.get("acked") == first["_id"]:
            yield from delete(MESSAGES, {"_id": first["_id"]})  # somebody's ack stopped half-way
            return None
        return int(first["_id"])

    def put_in_line(self, message: Document, drawn: Document) -> Steps[Document | None]:
        """Make sure that a message's group is in line, and leave `drawn`'s number in it; returns it as it was before.

        The place of a group that becomes non-empty is the time of its message, minus the queue's head start.
        """
        started = time.monotonic()
        group_id, stamp, seq = message["group_id"], drawn["seq"], message["_id"]
        priority = number(message, "priority") or 0
        place = {"priority": priority, "ready_at": place_of_new(message, drawn)}
        placed = False
        free = {"token": None, "worker_id": None, "leased": None, "attempts": 0, "acked": None}
        change = {"$setOnInsert": place | free, "$set": {"touched": stamp}}
        before = yield from upsert(GROUPS, {"_id": group_id}, change)
        if before is None:
            placed = True
            # the message may have been served by way of a group that is gone since
            yield from self.drop_if_empty(group_id, touched=stamp, acked=None)
        elif number(before, "priority") not in PRIORITIES:  # no claim finds it: somebody has changed it
            yield from update(
                GROUPS, {"_id": group_id, "priority": before.get("priority")}, {"$set": {"priority": priority}}
            )
        elif before.get("token") is None and before.get("acked") == before.get("touched"):
            # what an ack leaves that is not done, or never will be: if there is nothing else, the group is a new one
            others = {"group_id": group_id, "_id": {"$nin": [seq, before.get("acked")]}}
            if (yield from find_one(MESSAGES, others, fields=("_id",))) is None:
                unserved = {"_id": group_id, "token": None, "leased": None, "touched": stamp}
                yield from update(GROUPS, unserved, {"$set": place})
                placed = True
        if placed:
            yield from after_tick(started)
        return before

    def drop_if_empty(self, group_id: str, *, touched: int | None, acked: int | None) -> Steps[bool]:
        """Drop a free group without messages, if it is still what it was before one looks for messages."""
        if (yield from find_one(MESSAGES, {"group_id": group_id}, fields=("_id",))) is not None:
            return False
        unchanged = {"_id": group_id, "token": None, "touched": touched, "acked": acked}
        return (yield from delete(GROUPS, unchanged))


def place_of_new(message: Document, drawn: Document) -> datetime:
    """Return where a group that becomes non-empty with this message stands in line.

    With the head start `always` it is the message's seq: the first moments of the epoch lie before all other places.
    """
    head_start = drawn.get("head_start", DEFAULT_HEAD_START)
    if head_start == ALWAYS:
        return EPOCH + timedelta(milliseconds=message["_id"])
    published_at: datetime = moment(message, "published_at") or drawn["at"]
    return published_at - timedelta(seconds=float(head_start))


def is_head_start(value: object) -> bool:
    """Tell whether this is how a migration writes a head start."""
    try:
        return isinstance(value, str) and check_head_start(value) == value
    except ValueError:
        return False


def after_tick(since: float) -> Steps[None]:
    """Let the server's clock tick at least once after `since`, a moment when it had given a place in line."""
    rest = since + TICK - time.monotonic()
    if rest > 0:
        yield Sleep(rest)
