"""What SQLite, libSQL and rqlite share: one set of statements, and the core where a request may be sent twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, cast
from uuid import uuid4

from typing_extensions import TypeVar

from fairlane.backends.stored import CLAIM, PUBLISH, Call, Operation, ProcedureCore, Rows
from fairlane.errors import LeaseLost
from fairlane.model import Lease, MessageStatus
from fairlane.program import Program
from fairlane.templates import statement

TextT = TypeVar("TextT", bound=str, default=str)

FINISHED = Operation("finished", ("seq",), looks=True)
"""Which message a publish has made that was sent again after its message was finished."""

EXISTS = Operation("exists", ("found",), looks=True)
"""Whether the queue is there: libSQL and rqlite have no code of their own for a missing table."""

MAX_BIGINT = 2**63 - 1
_GENERATED = "fairlane:"
_GENERATED_ID = re.compile(_GENERATED + "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A dedup id that was made here, for a publish whose caller gave none. Nobody is shown it."""


class SentTwiceCore(ProcedureCore):
    """The stored operations where a request may be applied although its answer was lost, and is then sent again.

    So the client makes the token of a claim, and a claim that is sent again finds the lease that it has made. A publish
    carries an id of its own. A fenced operation names its message: a claim that arrives once more can lease another one
    under the same token.
    """

    client_tokens = True

    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Program[Call, Rows, int]:
        call_id = str(uuid4())
        arguments = {
            "p_group_id": group_id,
            "p_event": payload,
            "p_priority": priority,
            "p_dedup_id": dedup_id or f"{_GENERATED}{call_id}",
            "p_call_id": call_id,
        }
        rows = yield from self.call(PUBLISH, arguments)
        if not rows:  # it was carried out before, and its message has been finished since
            rows = yield from self.call(FINISHED, {"p_call_id": call_id})
        return int(rows[0]["seq"]) if rows else 0  # 0: so many were finished since that even its seq is forgotten

    def fence(self, lease: Lease[Any]) -> dict[str, Any]:
        if lease.seq > MAX_BIGINT:
            raise LeaseLost(lease.group_id, lease.seq)
        return {**super().fence(lease), "p_seq": lease.seq}

    def message_status(self, group_id: str, limit: int) -> Program[Call, Rows, list[MessageStatus]]:
        messages = yield from super().message_status(group_id, limit)
        return [
            replace(message, dedup_id=None) if _GENERATED_ID.fullmatch(message.dedup_id or "") else message
            for message in messages
        ]


class Statements(Generic[TextT]):
    """The rendered statements of one queue, without their comments.

    Args:
        queue: its name.
        dialect: sqlite, libsql or rqlite.
        kind: makes of a text what the backend's connections take; a plain str unless given.
    """

    def __init__(self, queue: str, dialect: str, kind: Callable[[str, Operation], TextT] | None = None) -> None:
        self._variables = {"queue": queue, "dialect": dialect}
        self._kind = kind
        self._texts: dict[Operation | int, TextT] = {}

    def __getitem__(self, call: Call) -> TextT:
        # a claim has one text for each floor: that number stands for it
        key = call.arguments["p_min_priority"] if call.operation is CLAIM else call.operation
        return self._texts.get(key) or self._rendered(key, call.operation)

    def _rendered(self, key: Operation | int, operation: Operation) -> TextT:
        extra = {"floor": key} if isinstance(key, int) else {}
        text = statement(f"procedures/sqlite/{operation.name}.sql.j2", **self._variables, **extra)
        made = self._texts[key] = cast(TextT, text) if self._kind is None else self._kind(text, operation)
        return made
