"""The parts of the operations that all backends have in common, as programs.

They check arguments and encode events before anything is sent. They ask once for the revision of the queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Generic

from fairlane import contract
from fairlane.backends.base import Core, Draft
from fairlane.backends.shared.ears import Ring
from fairlane.backends.shared.retry import STARTUP_PAUSES, Within, retried
from fairlane.backends.shared.waiting import Room, Wanted, waiting
from fairlane.codec import MAX_EVENT_BYTES, Codec, encode_event, errors_of
from fairlane.errors import BackendUnavailable, EventDecodingError, FairlaneError, LeaseLost, TransportClosed
from fairlane.model import GroupStatus, Lease, Message, MessageStatus, QueueStatus, T, new_lease
from fairlane.program import AnswerT, Program, RequestT, ResultT


class Operations(Generic[RequestT, AnswerT, T]):
    """The operations of the contract as programs. They add checks, the codec and the revision check to a core."""

    def __init__(self, core: Core[RequestT, AnswerT], codec: Codec[T]) -> None:
        self.core = core
        self.codec = codec
        self._decoding_errors = errors_of(codec)
        self._ready = False
        self._last_wish: tuple[object, object, object, tuple[str, float, int]] = None, None, None, ("", 0.0, 0)
        self.room = Room()
        self.closed = False
        self._selective = type(core).check_arguments is not Core.check_arguments

    def start(self, timeout: float) -> Program[RequestT, AnswerT, None]:
        """Ask for the revision of the queue. Repeat this while the server is not up, for at most `timeout` seconds."""
        yield from retried(self._check_ready, Within(timeout, STARTUP_PAUSES, BackendUnavailable))

    def _check_ready(self) -> Program[RequestT, AnswerT, None]:
        if not self._ready:
            yield from self.core.check_ready()
            self._ready = True

    def _when_ready(self, program: Program[RequestT, AnswerT, ResultT]) -> Program[RequestT, AnswerT, ResultT]:
        """Return a program that checks the queue's revision first, unless that was done before.

        After the check the program is returned as it is, since another generator around it takes time in each call.
        """
        return program if self._ready else self._after_check(program)

    def _after_check(self, program: Program[RequestT, AnswerT, ResultT]) -> Program[RequestT, AnswerT, ResultT]:
        yield from self._check_ready()
        return (yield from program)

    def publish(self, group_id: str, event: T, priority: int, dedup_id: str | None) -> Program[RequestT, AnswerT, int]:
        program = self.core.publish(*self._draft(group_id, event, priority, dedup_id))
        return program if self._ready else self._after_check(program)

    def _draft(self, group_id: str, event: T, priority: int, dedup_id: str | None) -> Draft:
        """Check the arguments of a publish, and encode its event."""
        group_id = contract.check_id("group_id", group_id)
        priority = contract.check_priority("priority", priority)
        dedup_id = contract.check_dedup_id(dedup_id)
        if self._selective:
            self.core.check_arguments("publish", {"priority": priority})
        return group_id, encode_event(self.codec, event), priority, dedup_id

    def claim(
        self, worker_id: str, visibility: float, min_priority: int, wait: float = 0.0
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        wish = self._wish(worker_id, visibility, min_priority)
        if type(wait) is not float or wait:
            wait = contract.check_wait(wait)
        program = self._waiting(*wish, wait) if wait else self.core.claim(*wish, self._leased)
        return program if self._ready else self._after_check(program)

    def _waiting(
        self, worker_id: str, visibility: float, min_priority: int, seconds: float
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        if self.core.long_polls:
            return self._long_polling(worker_id, visibility, seconds)
        wish = Wanted(
            min_priority,
            claim=lambda: self.core.claim(worker_id, visibility, min_priority, self._leased),
            look=self.core.next_ready,
            closed=lambda: self.closed,
        )
        return waiting(wish, self.room, seconds)

    def _long_polling(
        self, worker_id: str, visibility: float, seconds: float
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            lease = yield from self.core.claim_within(worker_id, visibility, self._leased, left)
            if lease is not None:
                return lease
            if self.closed:
                raise TransportClosed()
        return None

    def close(self) -> None:
        """End the claims that wait, with `TransportClosed`."""
        self.closed = True
        self.room.ring_all(Ring.MOVED)

    def _wish(self, worker_id: str, visibility: float, min_priority: int) -> tuple[str, float, int]:
        """Check the arguments of a claim. A worker repeats them, so the same objects are not checked again."""
        last = self._last_wish
        if worker_id is last[0] and visibility is last[1] and min_priority is last[2]:
            return last[3]
        given = worker_id, visibility, min_priority
        worker_id = contract.check_id("worker_id", worker_id)
        visibility = contract.check_visibility(visibility)
        min_priority = contract.check_priority("min_priority", min_priority)
        if self._selective:
            self.core.check_arguments("claim", {"min_priority": min_priority})
        wish = worker_id, visibility, min_priority
        self._last_wish = *given, wish
        return wish

    def _leased(
        self,
        group_id: str,
        text: str,
        seq: int,
        token: str,
        attempts: int,
        published_at: datetime,
        expires_at: datetime,
    ) -> Lease[T]:
        try:
            if not text.isascii():
                text.encode()  # refuses lone surrogates: a driver reads stored bytes that are not UTF-8 as such
            event = self.codec.decode(text)
        except self._decoding_errors as error:
            raise EventDecodingError(Lease(group_id, text, seq, token, attempts, published_at, expires_at)) from error
        return new_lease(group_id, event, seq, token, attempts, published_at, expires_at)

    def ack(self, lease: Lease[T]) -> Program[RequestT, AnswerT, None]:
        program = self.core.ack(contract.check_lease(lease))
        return program if self._ready else self._after_check(program)

    def nack(self, lease: Lease[T], delay: float) -> Program[RequestT, AnswerT, None]:
        lease = contract.check_lease(lease)
        delay = contract.check_delay(delay)
        if self._selective:
            self.core.check_arguments("nack", {"delay": delay})
        return self._when_ready(self.core.nack(lease, delay))

    def extend(self, lease: Lease[T], visibility: float) -> Program[RequestT, AnswerT, Lease[T]]:
        lease = contract.check_lease(lease)
        visibility = contract.check_visibility(visibility)
        expires_at = yield from self._when_ready(self.core.extend(lease, visibility))
        return replace(lease, expires_at=expires_at)

    def publish_many(self, messages: Iterable[Message[T]]) -> Program[RequestT, AnswerT, list[int]]:
        drafts: list[Draft] = []
        for each in messages:
            if not isinstance(each, Message):  # possible without a type checker
                raise TypeError(f"messages must be objects of fairlane.Message, not {type(each).__name__}")
            drafts.append(self._draft(each.group_id, each.event, each.priority, each.dedup_id))
        return self._when_ready(self._publish_many(drafts))

    def _publish_many(self, drafts: list[Draft]) -> Program[RequestT, AnswerT, list[int]]:
        seqs: list[int] = []
        for batch in batches_of(drafts):
            try:
                seqs += yield from self.core.publish_many(batch)
            except FairlaneError as error:
                if seqs:
                    error.add_note(f"The first {len(seqs):,} of {len(drafts):,} messages were published.")
                raise
        return seqs

    def claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[RequestT, AnswerT, list[Lease[T]]]:
        worker_id, visibility, min_priority = self._wish(worker_id, visibility, min_priority)
        return self._when_ready(self._claim_many(worker_id, visibility, contract.check_batch(limit), min_priority))

    def _claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[RequestT, AnswerT, list[Lease[T]]]:
        stored = yield from self.core.claim_many(worker_id, visibility, limit, min_priority)
        leases, failed = [], []
        for each in stored:
            try:
                leases.append(
                    self._leased(
                        each.group_id,
                        each.event,
                        each.seq,
                        each.token,
                        each.attempts,
                        each.published_at,
                        each.expires_at,
                    )
                )
            except EventDecodingError as error:
                failed.append(error)
        if failed:
            undecoded = [error.lease for error in failed]
            raise EventDecodingError(undecoded[0], leases, undecoded) from failed[0].__cause__
        return leases

    def ack_many(self, leases: Iterable[Lease[T]]) -> Program[RequestT, AnswerT, list[Lease[T]]]:
        held: list[Lease[T]] = []
        lost: list[Lease[T]] = []
        for lease in leases:
            try:
                held.append(contract.check_lease(lease))
            except LeaseLost:
                lost.append(lease)
        return self._when_ready(self._ack_many(held, lost))

    def _ack_many(self, held: list[Lease[T]], lost: list[Lease[T]]) -> Program[RequestT, AnswerT, list[Lease[T]]]:
        for start in range(0, len(held), contract.MAX_BATCH):
            lost += yield from self.core.ack_many(held[start : start + contract.MAX_BATCH])
        return lost

    def ack_and_claim(
        self, lease: Lease[T], worker_id: str, visibility: float, min_priority: int
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        lease = contract.check_lease(lease)
        wish = self._wish(worker_id, visibility, min_priority)
        return self._when_ready(self.core.ack_and_claim(lease, *wish, self._leased))

    def release(self, group_id: str) -> Program[RequestT, AnswerT, bool]:
        return self._when_ready(self.core.release(contract.check_id("group_id", group_id)))

    def purge(self, group_id: str) -> Program[RequestT, AnswerT, int]:
        return self._when_ready(self.core.purge(contract.check_id("group_id", group_id)))

    def pause(self, group_id: str | None) -> Program[RequestT, AnswerT, bool]:
        return self._when_ready(self.core.pause(None if group_id is None else contract.check_id("group_id", group_id)))

    def resume(self, group_id: str | None) -> Program[RequestT, AnswerT, bool]:
        return self._when_ready(self.core.resume(None if group_id is None else contract.check_id("group_id", group_id)))

    def queue_status(self) -> Program[RequestT, AnswerT, QueueStatus]:
        return self._when_ready(self.core.queue_status())

    def group_status(self, limit: int) -> Program[RequestT, AnswerT, list[GroupStatus]]:
        contract.check_limit(limit)
        return self._when_ready(self.core.group_status(limit))

    def message_status(self, group_id: str, limit: int) -> Program[RequestT, AnswerT, list[MessageStatus]]:
        group_id = contract.check_id("group_id", group_id)
        contract.check_limit(limit)
        rows = yield from self._when_ready(self.core.message_status(group_id, limit))
        return [self._decoded(row) for row in rows]

    def _decoded(self, row: MessageStatus) -> MessageStatus:
        try:
            return replace(row, event=self.codec.decode(row.event))
        except self._decoding_errors:
            return row  # an inspection shows the stored text of a damaged message


def batches_of(drafts: list[Draft]) -> Iterator[list[Draft]]:
    """Yield messages in their order, for one request each: at most 1,000, and as much text as one event may have."""
    batch: list[Draft] = []
    size = 0
    for draft in drafts:
        length = len(draft[1])
        if batch and (len(batch) == contract.MAX_BATCH or size + length > MAX_EVENT_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(draft)
        size += length
    if batch:
        yield batch
