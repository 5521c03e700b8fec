"""Promise 11: any text is a group id and a worker id, compared byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import LONG, Queue

pytestmark = pytest.mark.promise(11)

# Neighbours differ only in details that a database, a protocol or a template may ignore or take for syntax.
GROUPS = [
    "a",
    "A",
    "a ",
    " a",
    "a\t",
    "a\n",
    "\n",
    " ",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "ß",
    "ss",
    "ẞ",
    "İ",
    "i",
    "I",
    "ı",
    "ﬁ",
    "fi",
    "\N{KELVIN SIGN}",
    "K",
    "\N{ANGSTROM SIGN}",
    "Å",
    "a\N{ZERO WIDTH SPACE}",
    "\N{BYTE ORDER MARK}a",
    "\N{ZERO WIDTH JOINER}",
    "\N{COMBINING ACUTE ACCENT}",
    "\ufffe",
    "\uffff",
    "\U0010ffff",
    "\x01",
    "\x7f",
    "\x85",
    "1",
    "01",
    "1.0",
    "0",
    "-1",
    "null",
    "None",
    "true",
    "__parked__",
    ":",
    "::",
    "{}",
    "{a}",
    "}{",
    "{{ queue }}",
    "*",
    "?",
    "[a-z]",
    "%",
    "%s",
    "_",
    "'",
    "''",
    '"',
    "\\",
    "\\x61",
    "\\u0061",
    "$1",
    "?1",
    ":p_group_id",
    "x'6869'",
    "X'6869'",
    "E'a'",
    "'; drop table messages; --",
    "/* */",
    "--",
    "a/b",
    "../..",
    "a.b",
    "$where",
    "http://example.org/?a=b&c=d#e",
    "\N{PILE OF POO}",
    "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}",
    "a" * 512,
    "a" * 511,
    "é" * 256,
    "\N{PILE OF POO}" * 128,
]


def test_ids_the_table_has_no_equal_ones() -> None:
    assert len(set(GROUPS)) == len(GROUPS)


@pytest.mark.cluster
async def test_ids_of_groups_are_compared_byte_for_byte(queue: Queue) -> None:
    """Each id is a separate group with its own two messages, and comes back unchanged."""
    await queue.fill([(group, number) for number in range(2) for group in GROUPS])
    expected = {group: [0, 1] for group in GROUPS}
    if queue.caps.exact_counts:
        assert (await queue.status()).groups == len(GROUPS)
    held = []
    while (lease := await queue.claim("w", LONG)) is not None:
        held.append(lease)
    assert sorted(lease.group_id for lease in held) == sorted(GROUPS)
    found: dict[str, list[int]] = {}
    for number, lease in enumerate(held):  # every operation finds its own group among the similar ones
        if number % 3 == 0:
            await queue.nack(lease)
            continue
        await queue.ack(await queue.extend(lease, LONG))
        found.setdefault(lease.group_id, []).append(lease.event)
    for group, event in await queue.drain():
        found.setdefault(group, []).append(event)
    assert found == expected
    assert await queue.leftovers() == {}


async def test_ids_of_groups_are_published_and_inspected_as_they_are(queue: Queue) -> None:
    for group in GROUPS:
        await queue.publish(group, group)
    if queue.caps.inspect_messages:
        assert sorted(row.group_id for row in await queue.groups(limit=1000)) == sorted(GROUPS)
    for group in GROUPS[::4]:
        if queue.caps.inspect_messages:
            assert [row.event for row in await queue.messages(group)] == [group]


async def test_ids_of_workers_are_kept_as_they_are(queue: Queue) -> None:
    await queue.publish("g", 1)
    for worker in [*GROUPS[::3], "w" * 512]:
        lease = await queue.get(worker)
        if queue.caps.inspect_messages:
            assert (await queue.groups())[0].worker_id == worker
        await queue.nack(lease)


@pytest.mark.parametrize("size", [0, 1, 511])
async def test_ids_that_begin_alike_do_not_run_into_each_other(queue: Queue, size: Any) -> None:
    """Guards against keys made by joining an id and a number without a separator."""
    prefix = "x" * size
    groups = (
        [prefix + tail for tail in ("1", "2", "9")]
        if size == 511
        else [prefix + tail for tail in ("1", "11", "1 1", "1:1", "1-1", "1\x01", "1 ", "0", "00000000000000000001")]
    )
    await queue.fill([(group, number) for number in range(3) for group in groups])
    found: dict[str, list[int]] = {}
    for group, event in await queue.drain():
        found.setdefault(group, []).append(event)
    assert found == {group: [0, 1, 2] for group in groups}
