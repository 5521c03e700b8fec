"""Promise 4: leases and delays run by the server's clock, whatever the clients' clocks and time zones say."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.harness import LONG, SHORT, Queue
from tests.harness.processes import OtherProcess

pytestmark = pytest.mark.promise(4)

EXPIRES_AT = 6


@pytest.mark.cluster
@pytest.mark.parametrize("shift", [600, -600])
async def test_clock_of_a_client_that_is_ten_minutes_off_changes_nothing(queue: Queue, shift: Any) -> None:
    if queue.caps.clock != "server":
        pytest.skip(f"declared: {queue.caps.backend} goes by the clock of the {queue.caps.clock}")
    async with OtherProcess(queue, shift=shift) as wrong:
        assert abs((await wrong.call("time"))[0] - (await queue.now()).timestamp() - shift) < 60, "its clock is right"
        near = 10.0

        # its messages have their true age
        await wrong.call("publish", "a", 1)
        lease = await queue.get("right", 5)
        assert abs((lease.published_at - await queue.now()).total_seconds()) < near
        # it does not treat a valid lease of ours as expired, nor an expired one as valid
        assert await wrong.call("claim", "wrong", LONG) is None
        await queue.extend(lease, LONG)
        assert await wrong.call("claim", "wrong", LONG) is None
        short = await queue.extend(lease, SHORT)
        await queue.expired(short)
        theirs = await wrong.call("claim", "wrong", LONG)
        assert theirs[4] == 2
        # its own leases end at the same time as ours would
        assert abs(theirs[EXPIRES_AT] - (await queue.now()).timestamp() - LONG) < near
        assert await queue.claim("right", LONG) is None
        extended = await wrong.call("extend", theirs, 2 * LONG)
        assert abs(extended[EXPIRES_AT] - (await queue.now()).timestamp() - 2 * LONG) < near
        assert await queue.claim("right", LONG) is None
        shortened = await wrong.call("extend", theirs, SHORT)
        await queue.expired(datetime.datetime.fromtimestamp(shortened[EXPIRES_AT], datetime.UTC))
        lease = await queue.get("right", LONG)
        assert lease.attempts == 3
        # delays and places in line are right too
        await queue.nack(lease)
        theirs = await wrong.call("claim", "wrong", LONG)
        await wrong.call("nack", theirs, LONG)
        assert await queue.claim("right", LONG) is None
        assert await wrong.call("claim", "wrong", LONG) is None
        assert LONG - near < (await queue.groups())[0].ready_in_seconds <= LONG + 1


async def test_clock_places_in_line_do_not_depend_on_who_served(queue: Queue) -> None:
    """If the client's clock is in the future, the group it served still gets the right place."""
    if queue.caps.clock != "server":
        pytest.skip(f"declared: {queue.caps.backend} goes by the clock of the {queue.caps.clock}")
    for name in ("a", "b", "c"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    async with OtherProcess(queue, shift=600) as future, OtherProcess(queue, shift=-600) as past:
        for worker in (future, queue, past):
            if isinstance(worker, Queue):
                await worker.ack(await worker.get())
            else:
                await worker.call("ack", await worker.call("claim", "w", LONG))
    assert await queue.line() == ["a", "b", "c"]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns"])
async def test_clock_time_zone_of_a_process_changes_nothing(queue: Queue, zone: Any) -> None:
    """One is fourteen hours ahead of UTC, the other three and a half behind."""
    if queue.caps.reach == "process":
        pytest.skip("declared: a queue in memory has no other process")
    async with OtherProcess(queue, TZ=zone, PGTZ=zone) as abroad:
        await abroad.call("publish", "a", 1)
        theirs = await abroad.call("claim", "w", LONG)
        assert abs(theirs[EXPIRES_AT] - (await queue.now()).timestamp() - LONG) < 10
        assert abs(theirs[EXPIRES_AT - 1] - (await queue.now()).timestamp()) < 10
        assert await queue.claim("w", LONG) is None
        await abroad.call("nack", theirs)
        lease = await queue.get("w", 5)
        assert abs((lease.published_at - await queue.now()).total_seconds()) < 10
        assert await abroad.call("claim", "w", LONG) is None
        await queue.ack(lease)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    "setting",
    ["timezone=America/St_Johns", "timezone=Pacific/Kiritimati", "timezone=-13", "datestyle=SQL,DMY",
     "intervalstyle=sql_standard", "extra_float_digits=-15", "bytea_output=escape", "search_path=pg_temp"],
)  # fmt: skip
async def test_clock_settings_of_a_session_change_nothing(queue: Queue, setting: Any) -> None:
    url = queue.kit.url(queue.name)
    mark = "&" if "?" in url else "?"
    name, _, value = setting.partition("=")
    odd = await queue.another(url=f"{url}{mark}options=-c%20{name}%3D{value.replace('/', '%2F')}")
    before = await queue.now()
    await odd.publish("g", 0.1)
    lease = await odd.get("w", 30.25)
    after = await queue.now()
    for moment, offset in ((lease.published_at, 0), (lease.expires_at, 30.25)):
        assert moment.tzinfo is datetime.UTC
        assert before <= moment - datetime.timedelta(seconds=offset) <= after
    row = (await odd.messages("g"))[0]
    assert (row.published_at, row.event) == (lease.published_at, 0.1)
    assert (await odd.extend(lease, 30)).expires_at.tzinfo is datetime.UTC
    await odd.ack(lease)


async def test_clock_published_at_is_the_servers(queue: Queue) -> None:
    before = await queue.now()
    await queue.publish("g", 1)
    after = await queue.now()
    slack = datetime.timedelta(seconds=2 * queue.caps.resolution)
    assert before - slack <= (await queue.get()).published_at <= after + slack
