"""The programs for operators: they end leases, delete messages, and pause. The module `core` describes the protocol."""

from __future__ import annotations

import time

from bson.min_key import MinKey

from fairlane.backends.mongo.inspection import Inspection
from fairlane.backends.mongo.publishing import BEHIND, PAUSED, PRIORITIES, Publishing, after_tick
from fairlane.backends.mongo.wire import (
    EPOCH,
    GROUPS,
    HEAD,
    MESSAGES,
    WHOLE_QUEUE,
    Document,
    Steps,
    delete,
    delete_many,
    find_one,
    insert,
    number,
    one_call,
    update,
    upsert,
)
from fairlane.contract import MAX_PRIORITY

NOW = "$$NOW"  # the server's time when it received the command; it does not change within the command


class Operating(Publishing, Inspection):
    """The programs for operators, a part of the core."""

    @one_call
    def release(self, group_id: str) -> Steps[bool]:
        leased = {"_id": group_id, "token": {"$ne": None}}
        ready_at = {"$min": ["$ready_at", NOW]}  # a group whose lease has expired keeps its place
        change = {"token": None, "worker_id": None, "ready_at": ready_at}
        group = yield from update(GROUPS, leased, [{"$set": change}])
        if group is None:
            yield from self.check_there()
            return False
        yield from after_tick(time.monotonic())
        return True

    @one_call
    def purge(self, group_id: str) -> Steps[int]:
        group = yield from find_one(GROUPS, {"_id": group_id})
        waiting: Document = {"group_id": group_id}
        if group is None:
            yield from self.check_there()
        else:
            if group.get("acked") is not None:  # an ack stopped before it deleted this message
                yield from delete(MESSAGES, {"_id": group["acked"]})
            if group.get("token") is not None:
                leased = group.get("leased")
                if leased is None:  # a claim is about to store its head there
                    head = yield from find_one(MESSAGES, {"group_id": group_id}, HEAD, fields=("_id",))
                    leased = None if head is None else head["_id"]
                waiting["_id"] = {"$ne": leased}
        purged = yield from delete_many(MESSAGES, waiting)
        if group is not None and group.get("token") is None:
            yield from self.drop_if_empty(group_id, touched=group.get("touched"), acked=group.get("acked"))
        return purged

    @one_call
    def pause(self, group_id: str | None) -> Steps[bool]:
        yield from self.check_there()
        if group_id is None:
            first = {"_id": WHOLE_QUEUE, "priority": MAX_PRIORITY, "ready_at": MinKey(), "token": None, "attempts": 0}
            return (yield from insert(GROUPS, first)) is None
        while True:
            behind = {"priority": {"$add": ["$priority", -BEHIND]}}
            in_line = {"_id": group_id, "priority": {"$in": PRIORITIES}}
            if (yield from update(GROUPS, in_line, [{"$set": behind}])) is not None:
                return True
            empty = {"priority": -BEHIND, "ready_at": EPOCH, "token": None, "worker_id": None, "leased": None}
            counts = {"attempts": 0, "acked": None, "touched": None}
            before = yield from upsert(GROUPS, {"_id": group_id}, {"$setOnInsert": empty | counts})
            if before is None:
                return True
            priority = number(before, "priority")
            if priority in PAUSED:
                return False
            if priority not in PRIORITIES:  # changed by hand
                wrong = {"_id": group_id, "priority": before.get("priority")}
                if (yield from update(GROUPS, wrong, {"$set": {"priority": -BEHIND}})) is not None:
                    return True
            # otherwise a publish has made the group in the meantime

    @one_call
    def resume(self, group_id: str | None) -> Steps[bool]:
        if group_id is None:
            if (yield from delete(GROUPS, {"_id": WHOLE_QUEUE})):
                return True
            yield from self.check_there()
            return False
        place = {"$cond": [{"$lte": ["$ready_at", NOW]}, NOW, "$ready_at"]}
        change = {"priority": {"$add": ["$priority", BEHIND]}, "ready_at": place}
        paused = {"_id": group_id, "priority": {"$in": PAUSED}}
        group = yield from update(GROUPS, paused, [{"$set": change}])
        started = time.monotonic()
        if group is None:
            yield from self.check_there()
            return False
        touched, acked = group.get("touched"), group.get("acked")
        if group.get("token") is not None or not (
            yield from self.drop_if_empty(group_id, touched=touched, acked=acked)
        ):
            yield from after_tick(started)
        return True
