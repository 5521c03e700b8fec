"""One asyncio transport works in several event loops, also when one of them is closed in the middle of a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.harness.queues import in_thread

pytestmark = pytest.mark.promise(1, 9)


def left_alone(work: Any, steps: int) -> None:
    """Begin a coroutine in its own event loop, and close the loop after `steps` steps."""

    async def some_steps() -> None:
        for _ in range(steps):
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    task: Any = loop.create_task(work)
    task._log_destroy_pending = False  # this task belongs to the test; asyncio shall not print about it
    loop.run_until_complete(some_steps())
    loop.close()


# a thread of aiosqlite ends with an error
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("what", ["opens the file", "runs a statement"])
async def test_a_loop_that_is_closed_in_the_middle_of_a_call_blocks_no_other(tmp_path: Path, what: str) -> None:
    """Guards against waiting for a file that no loop opens any more. Guards also against an answer to a closed loop,
    which would end the thread that all loops use."""
    url = f"sqlite:///{tmp_path}/q.db"
    await in_thread(migrate.upgrade, url)

    def work() -> None:
        for steps in range(1, 8):
            transport: Any = asyncio.run(fairlane.connect_async(url))
            if what == "runs a statement":
                asyncio.run(transport.publish("open", steps))
            left_alone(transport.publish("g", steps), steps)
            asyncio.run(asyncio.wait_for(transport.publish("others", steps), 10))
            asyncio.run(transport.close())

    await in_thread(work)


async def test_loops_that_open_the_file_at_the_same_time_share_it(tmp_path: Path) -> None:
    """Guards against a loop that waits for a task of another loop, which asyncio refuses."""
    url = f"sqlite:///{tmp_path}/q.db"
    await in_thread(migrate.upgrade, url)
    for _ in range(5):
        transport: Any = await in_thread(asyncio.run, fairlane.connect_async(url))
        await asyncio.gather(*(in_thread(asyncio.run, transport.publish("g", number)) for number in range(6)))
        await transport.close()
