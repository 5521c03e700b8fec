"""An operation makes one request where the operations are stored in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlane import JsonCodec, Lease, Message
from fairlane.backends import MANIFESTS
from fairlane.backends.stored import CLAIM, Call, ProcedureCore
from fairlane.contract import CLIENT_REVISION
from fairlane.operations import Operations

STORED = [name for name in ("memory", "sqlite", "libsql", "rqlite", "postgres", "redis") if name in MANIFESTS]
BATCHED = [name for name in ("postgres", "redis") if name in MANIFESTS]
NOW = datetime(2024, 1, 1, tzinfo=UTC)
LEASE = Lease("g", 1, 1, "00000000-0000-0000-0000-000000000001", 1, NOW, NOW)
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "revision": [{"revision": CLIENT_REVISION, "serves": CLIENT_REVISION}],
    "publish": [{"seq": 1}],
    "claim": [dict(zip(CLAIM.columns, ("g", 1, "1", LEASE.token, 1, 0, 0), strict=True))],
    "ack": [{"group_id": "g"}],
    "nack": [{"group_id": "g"}],
    "extend": [{"expires_at": 0}],
    "publish_many": [{"seq": seq} for seq in range(500)],
    "ack_many": [],
}
ANSWERS["ack_and_claim"] = ANSWERS["claim"]
ANSWERS["claim_many"] = 3 * ANSWERS["claim"]
BATCHES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "publish_many": (lambda operations: operations.publish_many([Message("g", 1)] * 500), 1),
    "publish_many of 2,500": (lambda operations: operations.publish_many([Message("g", 1)] * 2500), 3),
    "claim_many": (lambda operations: operations.claim_many("w", 30, 1000, 0), 1),
    "ack_many": (lambda operations: operations.ack_many([LEASE] * 500), 1),
    "ack_many of 2,500": (lambda operations: operations.ack_many([LEASE] * 2500), 3),
    "ack_and_claim": (lambda operations: operations.ack_and_claim(LEASE, "w", 30, 0), 1),
}
"""Programs, and the number of their requests."""
PROGRAMS = {
    "publish": lambda operations: operations.publish("g", 1, 0, None),
    "claim": lambda operations: operations.claim("w", 30, 0),
    "ack": lambda operations: operations.ack(LEASE),
    "nack": lambda operations: operations.nack(LEASE, 0),
    "extend": lambda operations: operations.extend(LEASE, 30),
}


def requests_of(program: Any, answers: Mapping[str, Any] = ANSWERS) -> Any:
    """Drive a program as `run` does, and keep its requests."""
    asked = []
    try:
        request = next(program)
        while True:
            asked.append(request)
            request = program.send(answers[request.operation.name])
    except StopIteration:
        return asked


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("operation", PROGRAMS)
def test_an_operation_is_exactly_one_call(name: str, operation: Any) -> None:
    core = MANIFESTS[name].loaded().core("some_queue")
    assert isinstance(core, ProcedureCore)
    operations = Operations(core, JsonCodec())
    operations._ready = True  # the schema is asked for once per transport: see below
    asked = requests_of(PROGRAMS[operation](operations))
    assert len(asked) == 1
    assert isinstance(asked[0], Call)
    assert asked[0].operation.name == operation


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_batch_is_one_call_for_each_thousand(name: str, batch: str) -> None:
    operations = Operations(MANIFESTS[name].loaded().core("some_queue"), JsonCodec())
    operations._ready = True
    program, count = BATCHES[batch]
    assert [request.operation.name for request in requests_of(program(operations))] == [batch.partition(" ")[0]] * count


FAMILY = [name for name in ("sqlite", "libsql", "rqlite") if name in MANIFESTS]
TWO = {
    "publish_many": lambda operations: operations.publish_many([Message("g", 1), Message("h", 2)]),
    "claim_many": lambda operations: operations.claim_many("w", 30, 2, 0),
    "ack_many": lambda operations: operations.ack_many([LEASE, LEASE]),
    "ack_and_claim": lambda operations: operations.ack_and_claim(LEASE, "w", 30, 0),
}
ROWS = {"publish_many": "publish", "claim_many": "claim", "ack_many": "ack"}
ANSWERS_OF_TWO: dict[str, Any] = {name: [{"rows": ANSWERS[single]}] * 2 for name, single in ROWS.items()}
ANSWERS_OF_TWO["ack_and_claim"] = [{"rows": ANSWERS["ack"]}, {"rows": ANSWERS["claim"]}]


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("operation", TWO)
def test_many_messages_are_exactly_one_call(name: str, operation: Any) -> None:
    operations = Operations(MANIFESTS[name].loaded().core("some_queue"), JsonCodec())
    operations._ready = True
    asked = requests_of(TWO[operation](operations), ANSWERS_OF_TWO)
    assert [request.operation.name for request in asked] == [operation]
    assert len(asked[0].arguments["calls"]) == 2


@pytest.mark.parametrize("name", STORED)
def test_the_schema_is_asked_for_once(name: str) -> None:
    operations = Operations(MANIFESTS[name].loaded().core("some_queue"), JsonCodec())
    first = requests_of(operations.publish("g", 1, 0, None))
    second = requests_of(operations.publish("g", 1, 0, None))
    assert [request.operation.name for request in first] == ["revision", "publish"]
    assert [request.operation.name for request in second] == ["publish"]


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("wrong", ["group", "priority", "event"])
def test_a_bad_argument_asks_for_nothing(name: str, wrong: Any) -> None:
    operations = Operations(MANIFESTS[name].loaded().core("some_queue"), JsonCodec())
    group_id, event, priority = (
        "" if wrong == "group" else "g",
        {1} if wrong == "event" else 1,
        wrong == "priority" or 0,
    )
    with pytest.raises((ValueError, TypeError)):
        next(operations.publish(group_id, event, priority, None))
