"""The operations on an SQS FIFO queue as programs. They use message groups, visibility timeouts and receipt handles.

If the answer to a publish or a claim is lost, the request is sent again with the same id, so that SQS does it only
once. A delete or a change of visibility has no such id and is not sent again.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from fairlane.backends.base import Core, Leased
from fairlane.backends.shared.retry import delivered
from fairlane.backends.sqs import wire
from fairlane.backends.sqs.errors import LOST, MISSING, REFUSED, code_of, status_of
from fairlane.backends.sqs.wire import Answer, Request, Steps
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import (
    EventTooLarge,
    LeaseLost,
    SchemaNotReady,
    UnsupportedByBackend,
)
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus, Revision, T

POLL_SECONDS = 1
"""Seconds for which a claim waits for a message. Without waiting SQS asks only some of its servers."""

LONGEST_POLL = 5
"""The same for a claim that waits. SQS accepts 20 seconds, but a `close` can end a wait only between two requests."""

REMEMBERED = 20_000
"""The number of acked or nacked leases that a transport remembers, about 3 MB.

SQS accepts the receipt handle of such a lease until a worker claims the message. An extend would undo the nack, and an
ack would delete a message that is to be delivered again.
"""

ONLY_CLAIMED = "SQS shows a message only to the worker that claims it"

_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
_ATTRIBUTES = ["MessageGroupId", "SequenceNumber", "SentTimestamp", "ApproximateReceiveCount"]


class Recent:
    """A set of the last texts that were added. It forgets the oldest ones. Threads need no lock for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, text: str) -> None:
        """Add a text."""
        self._digests[_digest(text)] = None
        while len(self._digests) > self._most:
            with suppress(KeyError):  # another thread has removed the last one
                self._digests.popitem(last=False)

    def __contains__(self, text: str) -> bool:
        return _digest(text) in self._digests


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


class SqsCore(Core[Request, Answer]):
    """Programs that use the calls of SQS. The module `wire` defines requests, ids and tokens."""

    long_polls = True

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self._url: str | None = None
        self._given_up = Recent(REMEMBERED)

    def check_arguments(self, operation: str, arguments: Mapping[str, float]) -> None:
        """Refuse priorities, which SQS does not have, and delays longer than its maximum."""
        if arguments.get("priority") or arguments.get("min_priority"):
            raise UnsupportedByBackend("sqs", "priorities", "use priority 0, or a queue for each priority")
        if arguments.get("delay", 0) > wire.LONGEST:
            raise UnsupportedByBackend(
                "sqs", f"a delay of more than {wire.LONGEST:,} seconds", "use a shorter delay, and nack again later"
            )

    def revision(self) -> Steps[Revision | None]:
        try:
            where = Request("get_queue_url", {"QueueName": wire.queue_name(self.queue)})
            self._url = (yield from _asked(where))["QueueUrl"]
            tagged = yield from _asked(Request("list_queue_tags", {"QueueUrl": self._url}, where.ends))
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            raise
        tags = tagged.get("Tags", {})
        revision = tags.get(wire.REVISION)
        return Revision(revision, tags.get(wire.SERVES, revision)) if revision else None

    def _request(self, operation: str, arguments: Mapping[str, object], ends: float | None = None) -> Request:
        return Request(operation, {"QueueUrl": self._url, **arguments}, ends)

    def _send(self, request: Request, *, repeatable: bool = True) -> Steps[Answer]:
        """Send a request to the queue.

        Raises:
            SchemaNotReady: the queue is not there.
        """
        try:
            return (yield from _asked(request, repeatable=repeatable))
        except ClientError as error:
            if code_of(error) in MISSING:
                raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from error
            raise

    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Steps[int]:
        group = wire.id_of(group_id)
        arguments: dict[str, object] = {
            "MessageGroupId": group,
            # equal events are two messages, so each publish without a dedup id has a new id
            "MessageDeduplicationId": wire.FRESH + uuid4().hex if dedup_id is None else wire.id_of(dedup_id),
            "MessageBody": wire.body_of(payload),
        }
        if attributes := wire.group_attributes(group_id, group):
            arguments["MessageAttributes"] = attributes
        request = self._request("send_message", arguments)
        try:
            answer = yield from self._send(request)
        except ClientError as error:
            if code_of(error) in REFUSED or status_of(error) == 413:
                yield from self._refuse_large(request, error)
            raise
        return int(answer["SequenceNumber"])

    def _refuse_large(self, refused: Request, error: ClientError) -> Steps[None]:
        """Raise `EventTooLarge` if a message is larger than the limit of the queue."""
        size = wire.size_of(refused.arguments)
        asking = self._request("get_queue_attributes", {"AttributeNames": ["All"]}, refused.ends)
        answer = yield from self._send(asking)
        limit = int(answer.get("Attributes", {}).get("MaximumMessageSize", 0)) or None
        if limit is None or size > limit:
            raise EventTooLarge(size, limit) from error

    def claim(self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]) -> Steps[Lease[T] | None]:
        return self.claim_within(worker_id, visibility, leased, POLL_SECONDS)

    def claim_within(
        self, worker_id: str, visibility: float, leased: Leased[T], seconds: float
    ) -> Steps[Lease[T] | None]:
        polls = max(POLL_SECONDS, min(LONGEST_POLL, math.floor(seconds)))
        seconds = math.ceil(visibility)
        asked = datetime.now(UTC)
        arguments = {
            "MaxNumberOfMessages": 1,
            "WaitTimeSeconds": polls,
            "VisibilityTimeout": seconds,
            "MessageSystemAttributeNames": _ATTRIBUTES,
            "MessageAttributeNames": [wire.GROUP],
            "ReceiveRequestAttemptId": uuid4().hex,
        }
        answer = yield from self._send(self._request("receive_message", arguments))
        messages = answer.get("Messages") or ()
        if not messages:
            return None
        message = messages[0]
        attributes = message["Attributes"]
        group_id, seq = wire.group_of(message), int(attributes["SequenceNumber"])
        end = int(asked.timestamp()) + wire.LONGEST
        return leased(
            group_id,
            message["Body"],
            seq,
            wire.token_of(message["ReceiptHandle"], group_id, seq, end),
            int(attributes["ApproximateReceiveCount"]),
            datetime.fromtimestamp(int(attributes["SentTimestamp"]) / 1000, UTC),
            asked + timedelta(seconds=seconds),  # by this client's clock, from before the request
        )

    def ack(self, lease: Lease[Any]) -> Steps[None]:
        handle, _ = self._held(lease)
        yield from self._fenced(lease, "delete_message", {"ReceiptHandle": handle})
        self._given_up.add(lease.token)

    def nack(self, lease: Lease[Any], delay: float) -> Steps[None]:
        yield from self._hide(lease, delay)
        self._given_up.add(lease.token)

    def extend(self, lease: Lease[Any], visibility: float) -> Steps[datetime]:
        asked = datetime.now(UTC)
        seconds = yield from self._hide(lease, visibility)
        return asked + timedelta(seconds=seconds)

    def _hide(self, lease: Lease[Any], seconds: float) -> Steps[int]:
        """Hide the message for some seconds from now, at most until its longest lease ends; return the seconds."""
        handle, end = self._held(lease)
        whole = min(math.ceil(seconds), max(0, end - math.ceil(time.time())))
        arguments = {"ReceiptHandle": handle, "VisibilityTimeout": whole}
        yield from self._fenced(lease, "change_message_visibility", arguments)
        return whole

    def _held(self, lease: Lease[Any]) -> tuple[str, int]:
        found = wire.handle_of(lease.token, lease.group_id, lease.seq)
        if found is None or lease.token in self._given_up:
            raise LeaseLost(lease.group_id, lease.seq)
        return found

    def _fenced(self, lease: Lease[Any], operation: str, arguments: Mapping[str, object]) -> Steps[None]:
        """Send a request that SQS carries out only for the newest receipt handle of a message in flight.

        Raises:
            LeaseLost: SQS does not accept the receipt handle.
        """
        try:
            yield from self._send(self._request(operation, arguments), repeatable=False)
        except ClientError as error:
            if code_of(error) in LOST:
                raise LeaseLost(lease.group_id, lease.seq) from error
            raise

    def release(self, group_id: str) -> Steps[bool]:
        yield from ()
        raise UnsupportedByBackend("sqs", "ending the lease of another worker", "wait for the end of its visibility")

    def purge(self, group_id: str) -> Steps[int]:
        yield from ()
        raise UnsupportedByBackend("sqs", "purging a group", "claim and ack its messages, or purge the queue")

    def pause(self, group_id: str | None) -> Steps[bool]:
        yield from ()
        raise UnsupportedByBackend("sqs", "pausing", "stop the workers")

    def resume(self, group_id: str | None) -> Steps[bool]:
        yield from ()
        raise UnsupportedByBackend("sqs", "pausing", "nothing is paused")

    def queue_status(self) -> Steps[QueueStatus]:
        answer = yield from self._send(self._request("get_queue_attributes", {"AttributeNames": list(_COUNTS)}))
        waiting, hidden, delayed = (int(answer.get("Attributes", {}).get(name, 0)) for name in _COUNTS)
        return QueueStatus(self.queue, None, None, hidden, None, waiting + hidden + delayed, None, paused=None)

    def group_status(self, limit: int) -> Steps[list[GroupStatus]]:
        yield from ()
        raise UnsupportedByBackend("sqs", "looking at groups", ONLY_CLAIMED)

    def message_status(self, group_id: str, limit: int) -> Steps[list[MessageStatus]]:
        yield from ()
        raise UnsupportedByBackend("sqs", "looking at messages", ONLY_CLAIMED)


def _asked(request: Request, *, repeatable: bool = True) -> Steps[Answer]:
    """Send a request. Send it again if it failed and was certainly not carried out, or if it is `repeatable`."""
    return delivered(request, repeatable=repeatable)
