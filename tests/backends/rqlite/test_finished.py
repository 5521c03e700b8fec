"""A queue remembers finished messages, for a publish that is sent again after its message was finished."""

from __future__ import annotations

from typing import Any

from fairlane.backends.stored import PUBLISH, Call
from tests.harness.queues import in_thread

COMMON = {"p_event": "1", "p_priority": 0, "p_dedup_id": None}


async def test_only_the_newest_finished_messages_are_remembered(queue: Any) -> None:
    """The newest are those that were finished last. Guards against records that stay in the queue for ever."""

    async def sql(*texts: Any) -> Any:
        reads = texts[0].startswith("select")
        answers = await in_thread(queue.kit.send, queue.name, [(text, {}) for text in texts], reads=reads)
        return [next(iter(row.values())) for row in answers[-1]]

    (trigger,) = await sql(f"select sql from sqlite_master where name = '{queue.name}_remembered'")
    assert " - 10000" in trigger
    await sql(f'drop trigger "{queue.name}_remembered"', trigger.replace(" - 10000", " - 5"))
    calls = [Call(PUBLISH, {**COMMON, "p_group_id": f"g{n}", "p_call_id": f"c{n}"}) for n in range(12)]
    await in_thread(queue.kit.batch, queue.name, calls)
    first = await queue.get()
    await queue.drain()
    await queue.ack(first)
    kept = f'select group_concat(seq) from (select seq from "{queue.name}_finished" order by number)'
    assert await sql(kept) == ["9,10,11,12,1"]
