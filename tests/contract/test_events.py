"""Promise 10: JSON values come back equal, type by type; everything else is refused before it is written."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
from typing import Any

import pytest

from fairlane import EventDecodingError, EventEncodingError, EventTooLarge, JsonCodec
from tests.harness import LONG, Queue, Queues

pytestmark = pytest.mark.promise(10)


def nested(depth: Any, leaf: int = 1) -> Any:
    value: Any = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


GOOD = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "minus-one": -1,
    "float-zero": 0.0,
    "float-minus-zero": -0.0,
    "float-one": 1.0,
    "float-tenth": 0.1,
    "float-tiny": 5e-324,
    "float-huge": 1.7976931348623157e308,
    "int-2**31": 2**31,
    "int-2**53+1": 2**53 + 1,
    "int-2**63": 2**63,
    "int-minus-2**63-1": -(2**63) - 1,
    "int-4300-digits": 10**4300 - 1,
    "int-minus-4300-digits": -(10**4300) + 1,
    "text-empty": "",
    "text-blank": " ",
    "text-nul": "a\0b",
    "text-only-nul": "\0",
    "text-control": "".join(map(chr, range(32))) + "\x7f",
    "text-line-separators": "\u2028\u2029\x85\r\n",
    "text-backslashes": "\\u0000 \\ \" ' / \\\\",
    "text-emoji": "\N{PILE OF POO}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}",
    "text-nfc": "é",
    "text-nfd": "e\N{COMBINING ACUTE ACCENT}",
    "text-noncharacter": "\ufffe\uffff\U0010ffff",
    "text-bom": "\ufeff{}",
    "text-number": "1",
    "text-json": '{"a": 1}',
    "text-sql": "'; drop table messages; -- %s ? :a $1 {}",
    "text-hex-literal": "x'6869'",
    "text-brackets": "]]..[[",
    "list-empty": [],
    "list-nested-empty": [[], [[]], {}],
    "list-mixed": [None, True, 0, 0.0, "", [], {}, "0", 1, 1.0],
    "dict-empty": {},
    "dict-order": {"b": 1, "a": 2, "": 3},
    "dict-dotted-and-dollar": {"a.b": 1, "$set": {"$inc": 1}, "a\0b": 2, "_id": 3},
    "dict-proto": {"__proto__": 1, "constructor": 2},
    "deep": nested(200),
}


def exactly(left: Any, right: Any) -> Any:
    """Return whether two values are equal, with equal types at every level: 1, 1.0 and True differ, and so do 0.0 and
    -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(exactly(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(exactly, left, right))
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and left == right
    return left == right


@pytest.mark.cluster
async def test_events_come_back_equal_type_by_type(queue: Queue) -> None:
    for name, event in GOOD.items():
        await queue.publish(name, event)
    wrong = []
    seen = []
    for _ in GOOD:
        lease = await queue.get()
        seen.append(lease.group_id)
        if not exactly(lease.event, GOOD[lease.group_id]):
            wrong.append(f"{lease.group_id}: {lease.event!r:.80}")
        await queue.ack(lease)
    assert wrong == []
    assert seen == list(GOOD) if queue.caps.fairness else sorted(seen) == sorted(GOOD)


async def test_events_of_five_megabytes_come_back(queue: Queue) -> None:
    size = min(5_000_000, queue.caps.max_event_bytes - 1000)
    event = {"text": "ab\N{SNOWMAN}c\0" * (size // 13), "list": list(range(1000))}
    await queue.publish("g", event)
    assert len(json.dumps(event, ensure_ascii=False).encode()) > size * 0.7
    lease = await queue.get()
    assert lease.event == event
    await queue.nack(lease)
    assert (await queue.get()).event == event


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int = 1


def loop() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


BAD = {
    "nan": math.nan,
    "inf": math.inf,
    "minus-inf-inside": [1, {"a": -math.inf}],
    "int-key": {1: "a"},
    "none-key": {None: "a"},
    "bool-key-inside": [{"a": {True: 1}}],
    "surrogate": "\ud800",
    "surrogate-key": {"\udfff": 1},
    "surrogate-inside": [["\udc80"]],
    "datetime": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    "date": datetime.date(2024, 1, 1),
    "decimal": decimal.Decimal(1),
    "bytes": b"a",
    "bytearray": bytearray(b"a"),
    "set": {1},
    "tuple": (1, 2),
    "tuple-inside": [(1,)],
    "object": object(),
    "function": len,
    "enum": Colour.RED,
    "dataclass": Point(),
    "generator": (n for n in range(2)),
    "complex": 1j,
    "int-4301-digits": 10**4300,
    "too-deep": nested(201),
    "much-too-deep": nested(100_000),
    "endless": loop(),
}


@pytest.mark.cluster
async def test_events_that_are_not_json_are_refused_before_anything_is_written(queue: Queue) -> None:
    for name, event in BAD.items():
        with pytest.raises(EventEncodingError) as caught:  # the local variable `name` shows which event it was
            await queue.publish("g", event, dedup_id=name)
        assert len(str(caught.value)) < 400, "the message repeats the event"
    assert await queue.leftovers() == {}
    first = await queue.publish("g", "good", dedup_id="nan")
    assert (await queue.get()).seq == first


async def test_events_that_are_too_long_are_refused_before_anything_is_written(queue: Queue) -> None:
    limit = queue.caps.max_event_bytes
    with pytest.raises(EventTooLarge) as caught:
        await queue.publish("g", "x" * limit)
    assert caught.value.limit in (None, limit)
    assert await queue.leftovers() == {}


class Text:
    """A codec that writes JSON in an unusual format, and returns the text unchanged when it decodes."""

    def encode(self, event: Any) -> Any:
        return event

    def decode(self, text: str) -> Any:
        return text


VERBATIM = [
    '{"b": 1,   "a" :2, "b":3}',
    "1.0",
    "1.50",
    "1E400",
    "-0",
    "100000000000000000000000000000000000001",
    '"\\u00e9\\u0041\\/"',
    " \t[ 1 ,\n 2 ] \n",
    '"\\ud83d\\ude00"',
    '"\\u0000"',
]


@pytest.mark.cluster
async def test_events_no_procedure_decodes_and_encodes_them_again(queues: Queues) -> None:
    """Spaces, the order and number of keys, and the spelling of numbers stay as they were: the text comes back as it
    was sent."""
    queue = await queues.make(codec=Text())
    for text in VERBATIM:
        await queue.publish("g", text)
    assert [event for _, event in await queue.drain()] == VERBATIM


class PointCodec:
    """A codec as an application with its own models would write it."""

    def encode(self, event: Any) -> Any:
        return json.dumps({"x": event.x})

    def decode(self, text: str) -> Any:
        return Point(**json.loads(text))


async def test_events_may_be_of_any_type_with_a_codec(queues: Queues) -> None:
    queue = await queues.make(codec=PointCodec())
    await queue.publish("g", Point(7))
    if queue.caps.inspect_messages:
        assert (await queue.messages("g"))[0].event == Point(7)
    lease = await queue.get()
    assert lease.event == Point(7)
    assert (await queue.extend(lease, LONG)).event == Point(7)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[1,]", "'a'", "\ud800", '"\ud800"', b"1", None, 7])
async def test_events_that_a_codec_makes_must_keep_the_same_rules(queues: Queues, text: str) -> None:
    queue = await queues.make(codec=Text())
    with pytest.raises(EventEncodingError):
        await queue.publish("g", text)
    assert await queue.leftovers() == {}


class Odd(str):
    """The methods of a text that drivers may call."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        return b"1"

    def __str__(self) -> str:
        return "2"


async def test_events_a_codec_may_return_a_subclass_of_str(queues: Queues) -> None:
    queue = await queues.make(codec=Text())
    await queue.publish("g", Odd('"é"'))
    assert await queue.drain() == [("g", '"é"')]


async def test_events_an_error_of_the_codec_is_an_encoding_error(queues: Queues) -> None:
    queue = await queues.make(codec=PointCodec())
    with pytest.raises(EventEncodingError) as caught:
        await queue.publish("g", "no point")
    assert isinstance(caught.value.__cause__, AttributeError)
    assert await queue.leftovers() == {}


REFUSED_AT_CLAIM = {
    "larger than any float": "1e400",
    "larger than any float, written out": "1" + "0" * 400 + ".0",
    "a long mantissa and a short exponent": "[1" + "0" * 250 + "e60]",
    "half of a character": '"\\ud800"',
    "half of a character as a key": '{"\\uDFFF": 1}',
    "300 lists": "[" * 300 + "]" * 300,
    "300 objects": '{"a":' * 300 + "1" + "}" * 300,
    "100,000 lists": "[" * 100_000 + "]" * 100_000,
}


async def test_events_that_publish_would_refuse_are_not_handed_out(queue: Queue) -> None:
    """With SQL one can insert such events. A worker would get `inf` or the like, and could not publish the event
    anywhere."""
    other = await queue.another(codec=Text())
    for text in REFUSED_AT_CLAIM.values():
        try:
            await other.publish("g", text)
        except EventEncodingError:
            continue  # too deeply nested for a codec of the application as well
        if queue.caps.inspect_messages:
            assert (await queue.messages("g"))[0].event == text, "who looks sees the text"
        with pytest.raises(EventDecodingError) as caught:
            await queue.claim("w", LONG)
        assert caught.value.lease.event == text
        await queue.ack(caught.value.lease)
    assert await queue.leftovers() == {}


def test_events_that_look_like_refused_ones_are_decoded() -> None:
    """A quick check of the text finds what may be wrong. A closer check must accept these events."""
    codec = JsonCodec()
    for event in ("1e400", "\\ud800", "[" * 300, "\u0001", 10**299, 1e300, -1e-300, {"a" * 300: [0.1] * 300}):
        assert exactly(codec.decode(codec.encode(event)), event)


class TimeLimit(Exception):
    """The kind of exception that task queues raise in a signal handler."""


class Interrupted:
    """A codec that is interrupted by the signal handler."""

    def encode(self, event: Any) -> str:
        raise TimeLimit()

    def decode(self, text: str) -> Any:
        raise TimeLimit()


async def test_events_an_exception_out_of_a_signal_handler_passes_unchanged(queue: Queue) -> None:
    """Guards against an EventEncodingError in its place, and against an error that tells the worker to ack the
    message."""
    other = await queue.another(codec=Interrupted())
    with pytest.raises(TimeLimit):
        await other.publish("g", 1)
    assert await queue.leftovers() == {}
    await queue.publish("g", 1)
    with pytest.raises(TimeLimit):
        await other.claim("w", LONG)
    if queue.caps.inspect_messages:
        with pytest.raises(TimeLimit):
            await other.messages("g")
    assert await queue.claim("w", LONG) is None, "the lease was made"


class OwnErrors(PointCodec):
    """A codec of a library whose errors are not ValueErrors, as in msgspec."""

    errors = (TimeLimit,)

    def decode(self, text: str) -> Any:
        raise TimeLimit()


async def test_events_a_codec_may_declare_its_own_errors(queues: Queues) -> None:
    queue = await queues.make(codec=OwnErrors())
    await queue.publish("g", Point(7))
    with pytest.raises(EventDecodingError):
        await queue.claim("w", LONG)


async def test_events_that_cannot_be_decoded_come_with_a_usable_lease(queue: Queue) -> None:
    """The worker holds the lease: it can discard the message, or park it for a worker that can read it."""
    other = await queue.another(codec=PointCodec())
    await queue.publish("g", "no point")
    await queue.publish("g", "next")
    with pytest.raises(EventDecodingError) as caught:
        await other.claim("w", LONG)
    lease = caught.value.lease
    assert (lease.group_id, lease.event, lease.attempts) == ("g", '"no point"', 1)
    assert await queue.claim("w", LONG) is None, "the lease is not held"
    await other.nack(await other.extend(lease, LONG))
    with pytest.raises(EventDecodingError) as caught:
        await other.claim("w", LONG)
    assert caught.value.lease.attempts == 2
    await other.ack(caught.value.lease)
    assert [event for _, event in await queue.drain()] == ["next"]


async def test_events_inspection_shows_what_cannot_be_decoded(queue: Queue) -> None:
    other = await queue.another(codec=PointCodec())
    await queue.publish("g", "no point")
    if other.caps.inspect_messages:
        assert (await other.messages("g"))[0].event == '"no point"'


def test_events_the_default_codec_is_strict_in_both_directions() -> None:
    codec = JsonCodec()
    for text in ("NaN", "Infinity", "-Infinity", "[NaN]", "", "{", "'a'"):
        with pytest.raises(ValueError):
            codec.decode(text)
    for event in GOOD.values():
        assert exactly(codec.decode(codec.encode(event)), event)
