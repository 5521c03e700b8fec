"""What the tests of several folders share: queues on every backend behind one async interface, and functions to wait.

A test takes the fixture `queue` (or `queues`, to make several) and runs once for each backend and twin:

    async def test_a_nacked_message_comes_back_first(queue):
        await queue.publish("g", "first")
        lease = await queue.claim("w", 30)

`queue.expired(lease)` waits until the lease has run out by the server's clock, and `eventually(condition)` until a
condition holds. Prefer them to `sleep`. A test that sleeps says why: a real delay must pass, or something that must not
happen gets the time to happen.
"""

from tests.harness.kits import KITS
from tests.harness.kits.base import Kit
from tests.harness.leases import held
from tests.harness.queues import Queue, Queues
from tests.harness.waiting import eventually

LONG = 60.0
"""A visibility that is longer than any test."""

SHORT = 0.1
"""A visibility that a test waits for with `queue.expired`."""

__all__ = ["KITS", "LONG", "SHORT", "Kit", "Queue", "Queues", "eventually", "held"]
