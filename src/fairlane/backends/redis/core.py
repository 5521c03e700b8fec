"""The programs of the Redis backend: every operation is one function call. The functions are in `lua/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane.backends.redis.errors import Refused
from fairlane.backends.stored import QUEUE_STATUS, REVISION, Call, Operation, ProcedureCore, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from fairlane.program import Program


class RedisCore(ProcedureCore):
    """The stored operations are the functions of the queue's library."""

    client_tokens = True  # functions have no source of randomness, and a counter may go back in a failover
    _refused_by: str | None = None

    def check_ready(self) -> Program[Call, Rows, None]:
        try:
            yield from super().check_ready()
        except SchemaNotReady as error:
            if error.found is None:  # say which node of a cluster it is that lacks the functions
                error.host = self._refused_by
            raise

    def fault(self) -> Program[Call, Rows, str | None]:
        rows = yield from self.call(QUEUE_STATUS)
        if rows[0]["messages"] and (not rows[0]["groups"] or rows[0]["oldest_seconds"] is None):
            return "it holds messages that are in no line: `fairlane migrate` puts them back"
        return None

    def call(self, operation: Operation, arguments: Mapping[str, Any] | None = None) -> Program[Call, Rows, Rows]:
        """Ask for one operation; when the server refuses it without a reason, ask whether the functions are gone."""
        try:
            return (yield from super().call(operation, arguments))
        except Refused as caught:
            refused = caught
        self._refused_by = refused.error.host
        if operation is REVISION:
            return []
        if (yield from self.revision()) is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION, host=self._refused_by) from refused.__cause__
        # it failed, or the queue was removed and made anew just now
        raise refused.error from refused.__cause__
