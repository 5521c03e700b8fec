"""How many requests an operation makes: one, where the operations are stored in the database."""

from datetime import UTC, datetime

import pytest

from fairlane import Lease
from fairlane.backends import ENTRIES, load
from fairlane.backends.base import ProcedureCore
from fairlane.operations import Operations
from fairlane.program import Call

STORED = [name for name in ("memory", "sqlite", "libsql", "rqlite", "postgres", "redis") if name in ENTRIES]
NOW = datetime(2024, 1, 1, tzinfo=UTC)
LEASE = Lease("g", 1, 1, "00000000-0000-0000-0000-000000000001", 1, NOW, NOW)
ANSWERS = {
    "revision": [("0001", "0001")],
    "publish": [(1,)],
    "claim": [("g", 1, "1", LEASE.token, 1, 0, 0)],
    "ack": [(1,)],
    "nack": [(1,)],
    "extend": [(0,)],
}
PROGRAMS = {
    "publish": lambda operations: operations.publish("g", 1, 0, None),
    "claim": lambda operations: operations.claim("w", 30, 0),
    "ack": lambda operations: operations.ack(LEASE),
    "nack": lambda operations: operations.nack(LEASE, 0),
    "extend": lambda operations: operations.extend(LEASE, 30),
}


def requests_of(program):
    """Drive a program as `run` does, and keep what it asks for."""
    asked = []
    try:
        request = next(program)
        while True:
            asked.append(request)
            request = program.send(ANSWERS[getattr(request, "operation", "ack")])
    except StopIteration:
        return asked


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("operation", PROGRAMS)
def test_an_operation_is_exactly_one_call(name, operation):
    core = load(name).core("some_queue")
    assert isinstance(core, ProcedureCore)
    operations = Operations(core, None)
    operations._ready = True  # the schema is asked for once per transport, below
    asked = requests_of(PROGRAMS[operation](operations))
    assert len(asked) == 1
    assert isinstance(asked[0], Call)
    assert asked[0].operation == operation


@pytest.mark.parametrize("name", STORED)
def test_the_schema_is_asked_for_once(name):
    operations = Operations(load(name).core("some_queue"), None)
    first = requests_of(operations.publish("g", 1, 0, None))
    second = requests_of(operations.publish("g", 1, 0, None))
    assert [request.operation for request in first] == ["revision", "publish"]
    assert [request.operation for request in second] == ["publish"]


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("wrong", ["group", "priority", "event"])
def test_a_bad_argument_asks_for_nothing(name, wrong):
    operations = Operations(load(name).core("some_queue"), None)
    group_id, event, priority = (
        "" if wrong == "group" else "g",
        {1} if wrong == "event" else 1,
        wrong == "priority" or 0,
    )
    with pytest.raises((ValueError, TypeError)):
        next(operations.publish(group_id, event, priority, None))
