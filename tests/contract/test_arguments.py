"""Promise 12: bad arguments are refused with the value and the rule, before anything is sent."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from dataclasses import asdict, replace
from typing import Any, NoReturn

import pytest

import fairlane
from fairlane import LeaseLost
from tests.harness import Queue
from tests.harness.calls import every_call

pytestmark = pytest.mark.promise(12)

SURROGATE = "\ud800"
IDS = {
    "": ValueError,
    "a\0": ValueError,
    "\0": ValueError,
    SURROGATE: ValueError,
    "a" * 513: ValueError,
    "é" * 257: ValueError,
    "\N{PILE OF POO}" * 129: ValueError,
    None: TypeError,
    1: TypeError,
    b"a": TypeError,
    ("a",): TypeError,
}
PRIORITIES = {
    7: ValueError,
    5: ValueError,
    -1: ValueError,
    10**30: ValueError,
    10**5000: ValueError,
    # True and False equal 1 and 0, which would make them the same keys here
    "3": TypeError,
    None: TypeError,
    1.5: TypeError,
    math.nan: TypeError,
    (3,): TypeError,
}
VISIBILITIES = {
    0: ValueError,
    -1: ValueError,
    -0.001: ValueError,
    43_200.001: ValueError,
    43_201: ValueError,
    10**400: ValueError,
    10**5000: ValueError,
    math.inf: ValueError,
    -math.inf: ValueError,
    math.nan: ValueError,
    "30": TypeError,
    None: TypeError,
    decimal.Decimal(1): TypeError,
    datetime.timedelta(seconds=1): TypeError,
    1j: TypeError,
}
DELAYS = {
    -1: ValueError,
    -0.001: ValueError,
    365 * 86_400 + 1: ValueError,
    10**400: ValueError,
    math.inf: ValueError,
    math.nan: ValueError,
    "30": TypeError,
    None: TypeError,
    datetime.timedelta(seconds=1): TypeError,
}
DEDUP_IDS = {
    "": ValueError,
    "x" * 129: ValueError,
    "a\0b": ValueError,
    SURROGATE: ValueError,
    1: TypeError,
    b"a": TypeError,
}

NO_LEASES: tuple[object, ...] = (None, "token", 1, {})

CASES = [
    *(("group_id", value, error) for value, error in IDS.items()),
    *(("worker_id", value, error) for value, error in IDS.items()),
    *(("priority", value, error) for value, error in [*PRIORITIES.items(), (True, TypeError), (False, TypeError)]),
    *(("min_priority", value, error) for value, error in [*PRIORITIES.items(), (True, TypeError), (False, TypeError)]),
    *(("claim visibility", value, error) for value, error in [*VISIBILITIES.items(), (True, TypeError)]),
    *(("extend visibility", value, error) for value, error in [*VISIBILITIES.items(), (True, TypeError)]),
    *(("delay", value, error) for value, error in [*DELAYS.items(), (True, TypeError), (False, TypeError)]),
    *(("dedup_id", value, error) for value, error in DEDUP_IDS.items()),
    *(("lease", value, TypeError) for value in NO_LEASES),
]


async def call(queue: Queue, argument: Any, value: Any, lease: Any) -> None:
    match argument:
        case "group_id":
            await queue.publish(value, 1)
        case "worker_id":
            await queue.claim(value, 30)
        case "priority":
            await queue.publish("g", 1, value)
        case "min_priority":
            await queue.claim("w", 30, value)
        case "claim visibility":
            await queue.claim("w", value)
        case "extend visibility":
            await queue.extend(lease, value)
        case "delay":
            await queue.nack(lease, value)
        case "dedup_id":
            await queue.publish("g", 1, dedup_id=value)
        case "lease":
            for operation in (queue.ack, queue.nack, lambda wrong: queue.extend(wrong, 30)):
                with pytest.raises(TypeError):
                    await operation(value)
            raise TypeError(f"lease {value!r}")


def shown(value: Any) -> Any:
    return "large" if isinstance(value, int) and abs(value) > 10**4000 else repr(value)[:50]


@pytest.mark.cluster
async def test_arguments_that_break_a_rule_are_refused_with_the_value_and_the_rule(queue: Queue) -> None:
    await queue.publish("leased", 1)
    lease = await queue.get()
    before = await queue.groups() if queue.caps.inspect_messages else []
    wrong = []
    for argument, value, error in CASES:
        try:
            await call(queue, argument, value, lease)
        except (TypeError, ValueError) as caught:
            text, name = str(caught), argument.rpartition(" ")[2]
            if type(caught) is not error or name not in text or shown(value) not in text or len(text) > 400:
                wrong.append(f"{argument}={shown(value)}: {type(caught).__name__}: {text:.200}")
        else:
            wrong.append(f"{argument}={shown(value)}: accepted")
    assert wrong == []
    after = await queue.groups() if queue.caps.inspect_messages else []
    assert [asdict(row) | {"oldest_seconds": 0, "ready_in_seconds": 0} for row in after] == [
        asdict(row) | {"oldest_seconds": 0, "ready_in_seconds": 0} for row in before
    ], "a refused call changed something"
    await queue.ack(lease)


async def test_arguments_are_checked_before_anything_is_sent(queue: Queue) -> None:
    """Even on a transport without connections, a bad argument raises the error for a bad argument."""
    other = await queue.another()
    await other.close()
    for argument, value, error in CASES[:20]:
        with pytest.raises((error, fairlane.TransportClosed)):
            await call(other, argument, value, None)


@pytest.mark.cluster
async def test_arguments_at_the_limits_are_accepted(queue: Queue) -> None:
    top = 4 if queue.caps.priorities else 0
    await queue.publish("é" * 256, 1, top, dedup_id="x" * 128)
    lease = await queue.get("w" * 512, 43_200, top)
    assert lease.group_id == "é" * 256
    lease = await queue.extend(lease, 43_200)
    await queue.nack(lease, queue.caps.max_delay)
    await queue.publish("a", 1, 0, dedup_id="d")
    lease = await queue.get("w", 1e-9)
    assert lease.group_id == "a"
    lease = await queue.extend(lease, 1e-9)
    if queue.caps.extend_after_expiry:
        await queue.expired(lease)
    await queue.nack(lease, 1e-9)
    await queue.unparked("a")
    await queue.ack(await queue.get("w", 1))


async def test_arguments_numbers_of_other_types_than_int_and_float_that_are_ints_are_taken(queue: Queue) -> None:
    """Subclasses of int are ints, for example an IntEnum of priorities."""
    import enum

    class Level(enum.IntEnum):
        NORMAL = 0

    await queue.publish("g", 1, Level.NORMAL)
    await queue.nack(await queue.get("w", 30, Level.NORMAL), 0)
    assert (await queue.get("w", 30.5)).attempts == 2


LIMITS = [0, -1, 10_001, True, "3", None, 1.5]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.needs("inspect_messages")
async def test_arguments_of_inspection_are_checked_too(queue: Queue, limit: Any) -> None:
    for look in (queue.groups(limit=limit), queue.messages("g", limit=limit)):
        with pytest.raises((ValueError, TypeError)) as caught:
            await look
        assert "limit" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "_a", "a-b", "a b", "é", "a" * 32, "public", "pg_a", "sqlite", "sqlite_a", "a\n", "a;b"]
)
async def test_arguments_a_bad_queue_name_is_refused(queue: Queue, name: str) -> None:
    with pytest.raises(ValueError, match="queue must"):
        await queue.owner.open(name)


async def test_arguments_of_a_closed_transport_raise_transport_closed(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    await queue.close()
    await queue.close()
    for use in every_call(queue, lease).values():
        with pytest.raises(fairlane.TransportClosed):
            await use()


FORGED = [
    *(("group_id", value, error) for value, error in IDS.items()),
    *(("token", value, TypeError) for value in (None, 1, True, b"token", ["token"])),
    *(("token", value, LeaseLost) for value in ("a\0b", SURROGATE, "x" * 100_000)),
    *(("seq", value, TypeError) for value in (None, "1", 1.5, True)),
    *(("seq", value, ValueError) for value in (-1, 2**128, 10**5000)),
]


@pytest.mark.cluster
@pytest.mark.promise(3)
async def test_arguments_a_lease_made_by_hand_is_refused_whatever_is_in_it(queue: Queue) -> None:
    """Guards against drivers that fail on values that no claim returns. Guards also against a token of None that
    matches a group without a lease."""
    await queue.publish("leased", 1)
    await queue.publish("free", 1)
    lease = await queue.get()
    wrong = []
    for name, value, error in FORGED:
        content: dict[str, Any] = {name: value}
        forged = replace(lease, **content)
        for operation in (queue.ack, queue.nack, lambda it: queue.extend(it, 30)):
            try:
                await operation(forged)
            except (TypeError, ValueError, LeaseLost) as caught:
                if type(caught) is not error:
                    wrong.append(f"{name}={shown(value)}: {type(caught).__name__}: {caught!s:.200}")
            else:
                wrong.append(f"{name}={shown(value)}: accepted")
    assert wrong == []
    with pytest.raises(TypeError):
        await queue.ack(replace(lease, group_id="free", token=None))  # type: ignore[arg-type]  # is refused
    await queue.ack(lease)
    assert await queue.drain() == [("free", 1)]


class Name(str, enum.Enum):  # noqa: UP042 - str() of it is "Name.ORDERS"
    ORDERS = "orders"


class Odd(str):
    """The methods of a text that drivers may call."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        return b"odd"

    def __str__(self) -> str:
        return "odd"

    __hash__ = str.__hash__

    def __eq__(self, other: Any) -> Any:
        return False


@pytest.mark.cluster
@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", [Name, Odd])
async def test_arguments_that_are_a_kind_of_str_count_as_the_text_they_hold(queue: Queue, kind: Any) -> None:
    name = kind("orders")
    first = await queue.publish(name, 1, dedup_id=name)
    assert await queue.publish("other", 2, dedup_id="orders") == first
    await queue.publish("orders", 3)
    lease = await queue.get(name)
    assert (type(lease.group_id), lease.group_id, lease.event) == (str, "orders", 1)
    if queue.caps.inspect_messages:
        assert [(row.worker_id, row.depth) for row in await queue.groups()] == [("orders", 2)]
        assert len(await queue.messages(name)) == 2
    await queue.ack(replace(lease, group_id=kind(lease.group_id)))
    assert await queue.drain() == [("orders", 3)]


class Silent:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no text of this")


async def test_arguments_that_cannot_be_shown_are_still_refused(queue: Queue) -> None:
    for call in (lambda: queue.publish(Silent(), 1), lambda: queue.claim("w", Silent()), lambda: queue.ack(Silent())):
        with pytest.raises(TypeError, match="an object of Silent"):
            await call()
