"""No order of the programs' steps breaks a promise, on a server in memory. `explorer` says what is checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fairlane.backends.mongo.wire import GROUPS, MESSAGES, Delete, Update
from tests.backends.mongo.explorer import Explorer, consumer, operator, publisher
from tests.backends.mongo.watcher import Violation

A = (("g", "gA"),)
B = (("g", "gB"),)

SCENARIOS: dict[str, dict[str, Any]] = {
    "one publisher, one consumer": {
        "scripts": {"P": publisher(*A), "C": consumer("ack")},
    },
    "a publisher comes while the last message is acked": {
        "scripts": {"Q": publisher(*B), "C": consumer("ack"), "D": consumer("ack")},
        "done": A,
        "drawn": ("Q",),
        "expiries": 0,
    },
    "leases run out while a publisher comes": {
        "scripts": {"Q": publisher(*B), "C": consumer("ack", "ack")},
        "done": A,
        "drawn": ("Q",),
    },
    "leases run out and others go on": {
        "scripts": {"C": consumer("ack"), "D": consumer("ack", "ack")},
        "done": A + B,
        "crashes": 0,
    },
    "a smaller seq arrives after a larger one": {
        "scripts": {"P": publisher(*A), "C": consumer("ack"), "D": consumer("ack")},
        "done": B,
        "drawn": ("P",),
        "expiries": 0,
    },
    "a message is published again while it is acked": {
        "scripts": {"R": publisher(("g", "gR"), dedup_id="gA"), "Q": publisher(*B), "C": consumer("ack")},
        "done": A,
        "drawn": ("R", "Q"),
    },
    "a message is given back": {
        "scripts": {"C": consumer("nack", "ack"), "D": consumer("ack")},
        "done": A,
    },
    "a lease is extended or kept": {
        "scripts": {"C": consumer("extend", "keep"), "D": consumer("ack")},
        "done": A,
        "expiries": 2,
    },
    "one publisher, two messages": {
        "scripts": {"P": publisher(*A, *B), "C": consumer("ack")},
        "before": (("gA", "gB"),),
    },
    "a group is paused while its last message is acked and another one comes": {
        "scripts": {"Q": publisher(*B), "C": consumer("ack"), "O": operator("pause")},
        "done": A,
        "drawn": ("Q",),
        "expiries": 0,
    },
    "a group is paused while it becomes non-empty": {
        "scripts": {"P": publisher(*A), "C": consumer("ack"), "O": operator("pause")},
    },
    "an empty group is resumed while a message comes": {
        "scripts": {"P": publisher(*A), "O": operator("pause", "resume"), "C": consumer("ack")},
        "crashes": 0,
        "expiries": 0,
    },
    "a group is paused while two workers want it": {
        "scripts": {"C": consumer("ack"), "D": consumer("ack"), "O": operator("pause")},
        "done": A,
    },
    "two groups": {
        "scripts": {"P": publisher(("h", "hA")), "C": consumer("ack", "ack")},
        "done": A,
    },
}

LARGE: dict[str, dict[str, Any]] = {
    "two publishers, one consumer": {
        "scripts": {"P": publisher(*A), "Q": publisher(*B), "C": consumer("ack", "ack")},
        "drawn": ("P", "Q"),
    },
    "a publisher comes while leases run out and somebody crashes": {
        "scripts": {"Q": publisher(*B), "C": consumer("ack"), "D": consumer("ack")},
        "done": A,
        "drawn": ("Q",),
    },
    "a publisher comes while leases run out twice": {
        "scripts": {"Q": publisher(*B), "C": consumer("nack"), "D": consumer("ack")},
        "done": A,
        "drawn": ("Q",),
        "expiries": 2,
        "crashes": 0,
    },
}
"""These take minutes, and run only when FAIRLANE_TEST_EXHAUSTIVE is set."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_order_of_steps_breaks_a_promise(name: str) -> None:
    assert Explorer(**SCENARIOS[name]).run() > 100


@pytest.mark.skipif(not os.environ.get("FAIRLANE_TEST_EXHAUSTIVE"), reason="FAIRLANE_TEST_EXHAUSTIVE is not set")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE)
def test_no_order_of_many_steps_breaks_a_promise(name: str) -> None:
    assert Explorer(**LARGE[name]).run() > 50_000


# The rules of the protocol: each is left out once, to show that it is needed


def without(field: str) -> Any:
    """Drop groups without a check of one of their fields."""

    def tamper(request: Any, last_answer: Any) -> Any:
        if isinstance(request, Delete) and request.collection == GROUPS:
            return replace(request, filter={key: value for key, value in request.filter.items() if key != field})
        return request

    return tamper


def touched_with_the_seq(request: Any, last_answer: Any) -> Any:
    """Put a group in line with the seq of its message instead of a new number."""
    if isinstance(request, Update) and request.upsert and last_answer and "group_id" in last_answer:
        assert isinstance(request.update, Mapping)
        return replace(request, update={**request.update, "$set": {"touched": last_answer["_id"]}})
    return request


def acked_stays(request: Any, last_answer: Any) -> Any:
    """Delete the acked message only if it is the head."""
    if isinstance(request, Delete) and request.collection == MESSAGES and "group_id" in (last_answer or {}):
        return request if last_answer["_id"] == request.filter["_id"] else replace(request, filter={"_id": -1})
    return request


def leased_without_token(request: Any, last_answer: Any) -> Any:
    """Write down the leased message although the lease may have expired."""
    if isinstance(request, Update) and isinstance(request.update, dict) and "leased" in request.update.get("$set", {}):
        return replace(request, filter={"_id": request.filter["_id"]})
    return request


@pytest.mark.parametrize(
    ("tamper", "name"),
    [
        pytest.param(without("touched"), "a publisher comes while the last message is acked", id="touched"),
        pytest.param(without("acked"), "a publisher comes while the last message is acked", id="acked"),
        pytest.param(touched_with_the_seq, "a message is published again while it is acked", id="drawn-anew"),
        pytest.param(acked_stays, "a smaller seq arrives after a larger one", id="delete-acked"),
        pytest.param(
            without("priority"), "a group is paused while its last message is acked and another one comes", id="paused"
        ),
        pytest.param(leased_without_token, "leases run out and others go on", id="leased-under-token"),
    ],
)
def test_each_rule_is_needed(tamper: Any, name: str) -> None:
    with pytest.raises(Violation):
        Explorer(**SCENARIOS[name], tamper=tamper).run()
