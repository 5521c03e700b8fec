"""Use a queue from a separate process, whose clock may be wrong: `python -m tests.harness.driver TWIN URL QUEUE`.

Reads one JSON call per line, `["claim", "worker", 30]`, and answers each with one line: a result, or an error's name.
Leases are lists. `FAIRLANE_TEST_CLOCK_SHIFT` seconds are added to every time of day that Python can read.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
import time
from typing import Any

SHIFT = float(os.environ.get("FAIRLANE_TEST_CLOCK_SHIFT", "0"))


def shift_clock() -> None:
    """Shift the clocks. Must run before any module is imported that may keep a reference to a clock."""
    real_time, real_time_ns, real_datetime = time.time, time.time_ns, datetime.datetime

    class ShiftedDatetime(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return real_datetime.now(tz) + datetime.timedelta(seconds=SHIFT)

        @classmethod
        def utcnow(cls) -> datetime.datetime:  # type: ignore[override]
            return real_datetime.utcnow() + datetime.timedelta(seconds=SHIFT)

    time.time = lambda: real_time() + SHIFT
    time.time_ns = lambda: real_time_ns() + int(SHIFT * 1e9)
    datetime.datetime = ShiftedDatetime  # type: ignore[misc]


def main() -> None:
    twin, url, queue = sys.argv[1:]
    import asyncio

    import fairlane

    runner = asyncio.Runner()

    def wait(value: Any) -> Any:
        return value if twin == "sync" else runner.run(value)

    if twin == "sync":
        transport: Any = fairlane.connect(url, queue)
    else:
        transport = wait(fairlane.connect_async(url, queue))

    def lease_of(fields: list[Any]) -> fairlane.Lease:
        moment = datetime.datetime.fromtimestamp(0, datetime.UTC)
        group_id, event, seq, token, attempts = fields[:5]
        return fairlane.Lease(group_id, event, seq, token, attempts, moment, moment)

    def plain(value: Any) -> Any:
        if isinstance(value, fairlane.Lease):
            # not `datetime.datetime`: a shifted clock has replaced that class
            return [
                item.timestamp() if isinstance(item, datetime.date) else item  # type: ignore[attr-defined]
                for item in dataclasses.astuple(value)
            ]
        return value

    def call(name: str, *arguments: Any) -> Any:
        if name == "time":
            return [time.time(), datetime.datetime.now(datetime.UTC).timestamp(), str(datetime.datetime.now())[:13]]  # noqa: DTZ005
        given = [lease_of(item) if isinstance(item, list) else item for item in arguments]
        return wait(getattr(transport, name)(*given))

    print("ready", flush=True)
    for line in sys.stdin:
        try:
            answer = plain(call(*json.loads(line)))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)
    wait(transport.close())
    runner.close()


if __name__ == "__main__":
    if SHIFT:
        shift_clock()
    main()
