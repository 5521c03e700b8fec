"""What the operations of every backend have in common, as programs.

Arguments are checked and events encoded before anything is sent; the schema is asked for once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from fairlane import contract
from fairlane.backends.base import Core
from fairlane.codec import Codec, JsonCodec, encode_event
from fairlane.errors import BackendUnavailable, EventDecodingError
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus
from fairlane.program import Program, Sleep, T


class Operations:
    """Programs of the contract's operations: checks, codec and readiness around a backend's core."""

    def __init__(self, core: Core, codec: Codec | None) -> None:
        self.core = core
        self.codec: Codec = JsonCodec() if codec is None else codec
        self._ready = False
        self._selective = type(core).check_arguments is not Core.check_arguments

    def start(self, timeout: float) -> Program[None]:
        """Ask for the schema's revision, again while the server is not up, for `timeout` seconds at most."""
        deadline = time.monotonic() + timeout
        pause = 0.05
        while True:
            try:
                return (yield from self._check_ready())
            except BackendUnavailable:
                if time.monotonic() + pause > deadline:
                    raise
            yield Sleep(pause)
            pause = min(pause * 1.6, 1.0)

    def _check_ready(self) -> Program[None]:
        if not self._ready:
            yield from self.core.check_ready()
            self._ready = True

    def _when_ready(self, program: Program[T]) -> Program[T]:
        """Put the question whether the queue is ready before a program, once. Each generator more costs every call."""
        return program if self._ready else self._after_check(program)

    def _after_check(self, program: Program[T]) -> Program[T]:
        yield from self._check_ready()
        return (yield from program)

    def publish(self, group_id: str, event: Any, priority: int, dedup_id: str | None) -> Program[int]:
        group_id = contract.check_id("group_id", group_id)
        priority = contract.check_priority("priority", priority)
        dedup_id = contract.check_dedup_id(dedup_id)
        if self._selective:
            self.core.check_arguments("publish", {"priority": priority})
        payload = encode_event(self.codec, event)
        return self._when_ready(self.core.publish(group_id, payload, priority, dedup_id))

    def claim(self, worker_id: str, visibility: float, min_priority: int) -> Program[Lease | None]:
        worker_id, visibility, min_priority = contract.check_claim(worker_id, visibility, min_priority)
        if self._selective:
            self.core.check_arguments("claim", {"min_priority": min_priority})
        program = self.core.claim(worker_id, visibility, min_priority)
        lease = yield from program if self._ready else self._after_check(program)
        if lease is None:
            return None
        try:
            event = self.codec.decode(lease.event)
        except Exception as error:
            raise EventDecodingError(lease) from error
        object.__setattr__(lease, "event", event)  # nobody has seen it yet, and this is faster than replace()
        return lease

    def ack(self, lease: Lease) -> Program[None]:
        program = self.core.ack(contract.check_lease(lease))
        return program if self._ready else self._after_check(program)

    def nack(self, lease: Lease, delay: float) -> Program[None]:
        lease = contract.check_lease(lease)
        delay = contract.check_delay(delay)
        if self._selective:
            self.core.check_arguments("nack", {"delay": delay})
        return self._when_ready(self.core.nack(lease, delay))

    def extend(self, lease: Lease, visibility: float) -> Program[Lease]:
        lease = contract.check_lease(lease)
        visibility = contract.check_visibility(visibility)
        expires_at = yield from self._when_ready(self.core.extend(lease, visibility))
        return replace(lease, expires_at=expires_at)

    def queue_status(self) -> Program[QueueStatus]:
        return self._when_ready(self.core.queue_status())

    def group_status(self, limit: int) -> Program[list[GroupStatus]]:
        contract.check_limit(limit)
        return self._when_ready(self.core.group_status(limit))

    def message_status(self, group_id: str, limit: int) -> Program[list[MessageStatus]]:
        group_id = contract.check_id("group_id", group_id)
        contract.check_limit(limit)
        rows = yield from self._when_ready(self.core.message_status(group_id, limit))
        return [self._decoded(row) for row in rows]

    def _decoded(self, row: MessageStatus) -> MessageStatus:
        try:
            return replace(row, event=self.codec.decode(row.event))
        except Exception:
            return row  # whoever looks at a damaged message wants to see it
