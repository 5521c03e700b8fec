"""The programs of the Redis backend. Every operation calls one function; the functions are in `lua/`."""

from __future__ import annotations

from fairlane.backends.redis.errors import Refused, Unclaimed, Unfinished
from fairlane.backends.redis.wire import is_encodable
from fairlane.backends.shared.batches import StoredBatches
from fairlane.backends.stored import (
    ANNOUNCE,
    ANNOUNCED,
    CLAIM,
    QUEUE_STATUS,
    REVISION,
    Call,
    Row,
    Rows,
    queue_status_of,
)
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from fairlane.model import QueueStatus, Revision
from fairlane.program import Program


class RedisCore(StoredBatches):
    """Calls the functions of the queue's library."""

    client_tokens = True  # functions have no random numbers, and a failover may set a counter back
    _refused_by: str | None = None
    _is_old = False

    def check_ready(self) -> Program[Call, Rows, None]:
        try:
            yield from super().check_ready()
        except SchemaNotReady as error:
            if error.found is None:  # name the node of a cluster that lacks the functions
                error.host = self._refused_by
            raise

    def claim_fault(self, row: Row) -> tuple[str, str] | None:
        group_id = row["group_id"]
        if group_id.isascii() or is_encodable(group_id):
            return super().claim_fault(row)
        return (
            f"the name of group {group_id!a} is no UTF-8, so no lease on it could be acked or given back",
            "publish its messages to another group, and remove them from the key `messages`",
        )

    def next_ready(self, min_priority: int, name: str | None) -> Program[Call, Rows, float | None]:
        if name is None:
            return (yield from super().next_ready(min_priority, None))
        rows = yield from self.call(ANNOUNCE, {"p_min_priority": min_priority, "p_seconds": ANNOUNCED})
        found: float | None = rows[0]["ready_in_seconds"]
        return found

    def revision(self) -> Program[Call, Rows, Revision | None]:
        revision = yield from super().revision()
        self._is_old = revision is not None and revision.found < CLIENT_REVISION
        return revision

    def queue_status(self) -> Program[Call, Rows, QueueStatus]:
        # a migration also looks at queues of older revisions, whose function takes no argument
        rows = yield from self.call(QUEUE_STATUS, {"is_old": self._is_old})
        return queue_status_of(rows[0])

    def fault(self) -> Program[Call, Rows, str | None]:
        rows = yield from self.call(QUEUE_STATUS)
        if rows[0]["messages"] and (not rows[0]["groups"] or rows[0]["oldest_seconds"] is None):
            return "some of its messages have no place in line: `fairlane migrate` repairs that"
        return None

    def send(self, request: Call) -> Program[Call, Rows, Rows]:
        """Send a request. If the server refuses it without a reason, check whether the functions are missing."""
        operation = request.operation
        while True:
            try:
                return (yield request)
            except Unfinished:
                pass  # send the same request again: its deadline stays
            except Unclaimed:
                given = request.arguments
                request = Call(CLAIM, {**given, "p_token": given["p_new_token"]}, request.ends)
            except Refused as caught:
                refused = caught
                break
        self._refused_by = refused.error.host
        if operation is REVISION:
            return []
        if (yield from self.revision()) is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION, host=self._refused_by) from refused.__cause__
        # the function failed, or the queue was removed and created again just now
        raise refused.error from refused.__cause__
