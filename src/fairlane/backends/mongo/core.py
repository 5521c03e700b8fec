"""The operations on a queue in MongoDB. They are programs, and each step is one operation on one document.

Collections (the fields of their documents in brackets):
    <queue>_meta      one document [_id "queue", revision, serves, head_start, seq (the last one), at (its time)]
    <queue>_groups    [_id the group's id, priority, ready_at, token, worker_id, leased, attempts, acked, touched]
                      `leased` is the seq of the message delivered last and not acked, `acked` of the one acked last
                      of a paused group `priority` is 5 less, -5 to -1; a paused group may have no messages
    <queue>_messages  [_id the seq, group_id, event (the codec's text), priority, published_at, dedup_id if given]

There are no transactions. If a client stops between two steps, other clients must be able to continue from that state:

publish  1. draw a seq   2. insert the message   3. put the group in line, or update its `touched` if it is in line
         If it stops after 2, the call did not return. The message becomes claimable with the next publish into the
         group, with the same publish sent again (found by its dedup_id), or with a claim that finds no group.
claim    1. lease the first group in line   2. read its head   3. store in the group that this message is leased
         If it stops at any step, the lease expires. A group without messages is dropped, and the next one is leased.
ack      1. free the group and store the message as acked: this step checks the token and decides
         2. delete the message   3. drop the group if it has no other message
         If it stops after 1, the next claim deletes the message; after 2, the next claim uses or drops the group.

release  1. remove the token of the group
purge    1. read which message is leased   2. delete all others   3. drop the group if it is free and has no message
         A message that is claimed after 1 is deleted too. Its ack counts; after a nack it does not come again.
pause    1. subtract 5 from the group's priority, so that no claim finds it, or insert it without messages
         Nothing else changes, so ack, nack and extend need no rule for it. To pause the queue, a document with an empty
         _id is inserted, whose place is before all others. A claim that finds it returns None.
resume   1. add 5 to the priority, and move the group to the back of the line   2. drop it if it has no message

Three rules make this safe. tests/backends/mongo shows for each rule what fails without it:
- A group is dropped only if its `touched` has not changed since before the search for messages. Each step 3 of a
  publish writes a new number into `touched`. If a repeated publish wrote the seq of the first one, `touched` could look
  unchanged, and a published message would lose its group. `acked` must be unchanged too: a message can be delivered and
  acked before its publisher reaches step 3, and then only `acked` shows that. A paused group is never dropped.
- The message in `acked` is deleted before another message may become `leased`. Otherwise an ack that stopped between
  its steps and a smaller seq that is inserted later would overwrite `acked`, and the message would be delivered again.
- `leased` is written only if the token still matches, so a claim whose lease has expired starts again.

Ties: MongoDB's clock has milliseconds. An operation that gives a group a new place returns only in the next
millisecond (`after_tick`). So two such operations, one after the other, never give the same place.

Repeated requests: pymongo repeats a write after a lost answer only if the server recognises the repetition and returns
the first result (replica sets and sharded clusters; "retryable writes" in MongoDB's manual). On a standalone server
the call fails with `BackendUnavailable`. So Fairlane need not add a dedup_id to a publish.
"""

from __future__ import annotations

import time
from datetime import datetime
from math import ceil
from random import random
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from fairlane.backends.base import Core, Leased
from fairlane.backends.mongo.operating import NOW, Operating
from fairlane.backends.mongo.publishing import LOST, PAUSED, PLACE, after_tick, is_head_start
from fairlane.backends.mongo.wire import (
    EPOCH,
    GROUPS,
    HEAD,
    LINE,
    MESSAGES,
    META,
    QUEUE,
    WHOLE_QUEUE,
    Answer,
    Document,
    Request,
    Steps,
    aggregate,
    delete,
    find,
    find_one,
    moment,
    number,
    one_call,
    update,
)
from fairlane.contract import DEFAULT_HEAD_START
from fairlane.errors import LeaseLost, QueueDamaged
from fairlane.model import Lease, Revision, T
from fairlane.program import Sleep

LOOKS = 32
"""How often a claim searches again if other clients changed the groups during its search. Then it returns None."""

Claimed: TypeAlias = tuple[str, str, int, str, int, datetime, datetime]
"""The fields of a lease, with the stored text in place of the event."""

ASIDE_SECONDS = 3600.0
"""Seconds for which a group is parked if its head cannot be delivered."""

MOST_PAUSED = 1000
"""A claim that finds no group searches for messages outside of groups only if no more groups than these are paused."""

_IS_GROUP: Document = {"$ne": ["$_id", WHOLE_QUEUE]}


class MongoCore(Operating, Core[Request, Answer]):
    """The operations of one queue."""

    @one_call
    def revision(self) -> Steps[Revision | None]:
        found = yield from find_one(META, {"_id": QUEUE})
        if found is None or not found.get("revision"):
            return None
        return Revision(found["revision"], found["serves"])

    @one_call
    def fault(self) -> Steps[str | None]:
        found = yield from find_one(META, {"_id": QUEUE})
        if found is not None and number(found, "seq") is None:
            return self.wrong("seq", QUEUE, META)
        if found is not None and not is_head_start(found.get("head_start", DEFAULT_HEAD_START)):
            return self.wrong("head_start", QUEUE, META)
        lost = yield from find_one(GROUPS, LOST, fields=("_id",))
        return None if lost is None else self.wrong("priority", lost["_id"], GROUPS)

    # claim

    @one_call
    def claim(self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]) -> Steps[Lease[T] | None]:
        floor = {"priority": {"$in": list(range(min_priority, 5))}}
        # $expr with $$NOW uses the index (jstests/…/now_variable.js of MongoDB), and $in with a sort merges its ranges
        # ("The ESR Guideline" in the manual), so the server reads the first entry of at most five ranges. If another
        # command changes the document first, the server searches again with the same $$NOW (SERVER-22178).
        first = floor | {"$expr": {"$lte": ["$ready_at", NOW]}}
        looks = 0
        while looks < LOOKS:
            token = uuid4().hex
            change: Document = {
                "token": token,
                "worker_id": {"$literal": worker_id},
                "ready_at": {"$add": [NOW, _milliseconds(visibility)]},
                # a value that is not a number would make this and every other claim fail
                "attempts": {"$cond": [{"$isNumber": "$attempts"}, {"$add": ["$attempts", 1]}, 1]},
            }
            # the document that pauses the queue stays as it is
            change = {field: {"$cond": [_IS_GROUP, value, f"${field}"]} for field, value in change.items()}
            group = yield from update(GROUPS, first, [{"$set": change}], sort=LINE, after=True)
            if group is None:
                if not (yield from self._missed_one(floor, min_priority)):
                    return None
                looks += 1
                yield Sleep(0.000_5 * looks * random())
                continue
            if group["_id"] == WHOLE_QUEUE:
                return None
            started = time.monotonic()
            claimed = yield from self._lease_head(group, token)
            if claimed:
                yield from after_tick(started)
                return leased(*claimed)
            if claimed is None:
                looks += 1
        return None

    def _missed_one(self, floor: Document, min_priority: int) -> Steps[bool]:
        """Return whether a message is deliverable although the claim found none, since other clients changed groups."""
        ready = {"ready": {"$lte": ["$ready_at", NOW]}}
        first = ({"$match": floor}, {"$sort": dict(LINE)}, {"$limit": 1}, {"$project": ready})
        found = yield from aggregate(GROUPS, *first)
        if found:
            return bool(found[0]["ready"])
        if min_priority > 0:
            yield from self.check_there()
            return False
        message = yield from self._outside()
        if message is None:
            yield from self.check_there()
            return False
        drawn = yield from self.draw()
        yield from self.put_in_line(message, drawn)
        return True

    def _outside(self) -> Steps[Document | None]:
        """Return a message whose group is in no line although it is not paused.

        Its publisher has stopped before its last step or has not done it yet.
        """
        # a message without a group id was inserted by hand, and must not hide others
        any_id: Document = {"$type": "string"}
        message = yield from find_one(MESSAGES, {"group_id": any_id}, HEAD, PLACE)
        if message is None:
            return None
        if (yield from find_one(GROUPS, {"_id": message["group_id"], "priority": {"$in": PAUSED}})) is None:
            return message
        paused = yield from find(GROUPS, {"priority": {"$in": PAUSED}}, HEAD, MOST_PAUSED + 1)
        if len(paused) > MOST_PAUSED:
            return None
        # in the order of the index, so the server steps over each paused group at once, however many messages it has
        others = {"group_id": any_id | {"$nin": [group["_id"] for group in paused]}}
        return (yield from find_one(MESSAGES, others, (("group_id", 1), ("_id", 1)), PLACE))

    def _lease_head(self, group: Document, token: str) -> Steps[Claimed | Literal[False] | None]:
        """Return the lease on the group's head; False if the group was empty and dropped; None if the lease is lost."""
        group_id = group["_id"]
        held = {"_id": group_id, "token": token}
        while True:
            leased, acked = number(group, "leased"), number(group, "acked")
            if leased is not None:
                again = yield from find_one(MESSAGES, {"_id": leased, "group_id": group_id})
                if again is not None:
                    return _claimed(group, again, leased, number(group, "attempts") or 1)
            head = yield from find_one(MESSAGES, {"group_id": group_id}, HEAD)
            if head is None:
                changed = yield from self._give_up(group, held)
                if not changed:
                    return False if changed is False else None
                group = changed
                continue
            seq = number(head, "_id")
            if seq is None:  # the message cannot be delivered: park its group, so that others are served
                aside = {"token": None, "worker_id": None, "ready_at": {"$add": [NOW, _milliseconds(ASIDE_SECONDS)]}}
                yield from update(GROUPS, held, [{"$set": aside}])
                raise QueueDamaged(self.queue, f"{self._place_of(head, group_id)}; the group is parked for an hour")
            if acked is not None and seq <= acked:  # a head with a larger seq shows that the acked message is deleted
                yield from delete(MESSAGES, {"_id": acked})
                if seq == acked:
                    continue
            stored = yield from update(GROUPS, held, {"$set": {"leased": seq, "attempts": 1}})
            return None if stored is None else _claimed(group, head, seq, 1)

    def _give_up(self, group: Document, held: Document) -> Steps[Document | Literal[False] | None]:
        """Drop the group, which has no messages, and return False; return its new document if it has changed."""
        unchanged = {"touched": group.get("touched"), "priority": {"$nin": PAUSED}}
        if (yield from delete(GROUPS, held | unchanged)):
            return False
        free = {"token": None, "worker_id": None, "ready_at": NOW, "leased": None, "attempts": 0}
        if (yield from update(GROUPS, held | {"priority": {"$in": PAUSED}}, [{"$set": free}])):
            return False
        # another client has published in the meantime, or another worker has claimed the group
        return (yield from find_one(GROUPS, held))

    def _place_of(self, head: Document, group_id: object) -> str:
        where = f"in {self.queue}_messages the _id {head['_id']} of a message of group {group_id!r} is not a number"
        return f"{where}: delete that document, or publish its event again"

    # ack, nack, extend

    @one_call
    def ack(self, lease: Lease[Any]) -> Steps[None]:
        change = {
            "token": None,
            "worker_id": None,
            "acked": "$leased",
            "leased": None,
            "attempts": 0,
            "ready_at": NOW,
        }
        before = yield from self._fenced(lease, change)
        started = time.monotonic()
        done = before.get("leased")
        yield from delete(MESSAGES, {"_id": int(lease.seq) if number(before, "leased") is None else done})
        if not (yield from self.drop_if_empty(before["_id"], touched=before.get("touched"), acked=done)):
            yield from after_tick(started)

    @one_call
    def nack(self, lease: Lease[Any], delay: float) -> Steps[None]:
        ready_at = {"$add": [NOW, _milliseconds(delay)]}
        yield from self._fenced(lease, {"token": None, "worker_id": None, "ready_at": ready_at})
        yield from after_tick(time.monotonic())

    @one_call
    def extend(self, lease: Lease[Any], visibility: float) -> Steps[datetime]:
        ready_at = {"$add": [NOW, _milliseconds(visibility)]}
        group = yield from self._fenced(lease, {"ready_at": ready_at}, after=True)
        yield from after_tick(time.monotonic())
        end: datetime = group["ready_at"]
        return end

    def _fenced(self, lease: Lease[Any], change: Document, *, after: bool = False) -> Steps[Document]:
        """Change a group if its token is that of the lease.

        Raises:
            LeaseLost: the group has another token.
        """
        # str(): a lease may have been made by hand, and a filter must contain only text here
        held = {"_id": str(lease.group_id), "token": str(lease.token)}
        group = yield from update(GROUPS, held, [{"$set": change}], after=after)
        if group is None:
            yield from self.check_there()
            raise LeaseLost(lease.group_id, lease.seq)
        return group


def _milliseconds(seconds: float) -> int:
    return ceil(seconds * 1000)


def _claimed(group: Document, message: Document, seq: int, attempts: int) -> Claimed:
    event = message.get("event", "")  # if it is missing or not a text, the codec refuses it
    published_at = moment(message, "published_at") or EPOCH
    return message["group_id"], event, seq, group["token"], attempts, published_at, group["ready_at"]
