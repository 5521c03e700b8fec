"""Look for violations in a recorded history. In doubt nothing is reported: what is reported is certainly wrong.

A call that failed or was killed may have been carried out at any time from its beginning until much later. So such a
call can only excuse something. Times of different processes are comparable, since all use the machine's monotonic
clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.torture.history import NEVER, Call

GRACE = 0.15
"""The tolerance in seconds for the length of a lease: clocks and their resolutions differ."""


@dataclass(slots=True)
class Delivery:
    """One lease: a claim that returned, and the calls on it."""

    claim: Call
    calls: list[Call] = field(default_factory=list)

    @property
    def finished(self) -> Call | None:
        """Return the ack or nack that certainly ended it."""
        return next((call for call in self.calls if call.ok and call.operation in ("ack", "nack")), None)

    @property
    def acked(self) -> Call | None:
        return next((call for call in self.calls if call.ok and call.operation == "ack"), None)

    def held_until(self) -> float:
        """Return until when its group was certainly held: no other claim may get the group before."""
        end = self.claim.start + float(self.claim.arguments["visibility"]) - GRACE
        for call in self.calls:
            if call.start > end:
                break  # it had run out by then, and another worker may have the group
            if call.operation == "extend" and call.ok:
                end = call.start + float(call.arguments["visibility"]) - GRACE
            elif call.operation in ("ack", "nack"):
                return min(end, call.start)
            elif call.operation == "extend":
                end = min(end, call.start)  # it may have been made shorter
        return end

    def busy_until(self) -> float:
        """Return until when its group may have been held or parked."""
        done = self.finished
        if done is not None:
            return done.end + float(done.arguments.get("delay", 0.0)) + GRACE
        end = self.claim.end + float(self.claim.arguments["visibility"])
        for call in self.calls:
            longest = max(float(call.arguments.get("visibility", 0.0)), float(call.arguments.get("delay", 0.0)))
            end = max(end, (call.end if call.end < NEVER else call.start + 60.0) + longest)
        return end + GRACE


class History:
    """The calls, sorted by message and group."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.published = [call for call in calls if call.operation == "publish"]
        self.confirmed: dict[str, list[Call]] = defaultdict(list)
        """The publishes of each group that certainly count."""
        for call in self.published:
            if call.ok and call.result != "rolled back":
                self.confirmed[call.arguments["group_id"]].append(call)
        claims = [call for call in calls if call.operation == "claim"]
        self.deliveries = [Delivery(call) for call in claims if call.ok and call.result is not None]
        self.empty_claims = [call for call in claims if call.ok and call.result is None]
        # A claim in several steps (MongoDB) may take a group without messages, and lose it again if it takes longer
        # than its lease. Nobody else gets the group meanwhile, although a message may be published into it.
        self.doubtful = [
            call for call in claims if not call.ok or call.end - call.start > float(call.arguments["visibility"]) / 2
        ]
        by_token = {delivery.claim.result["token"]: delivery for delivery in self.deliveries}
        for call in calls:
            if call.operation in ("ack", "nack", "extend"):
                by_token[call.arguments["token"]].calls.append(call)
        self.by_message: dict[str, list[Delivery]] = defaultdict(list)
        self.by_group: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            self.by_message[delivery.claim.result["event"]].append(delivery)
            self.by_group[delivery.claim.result["group_id"]].append(delivery)


def check(calls: Sequence[Call], *, limit: float, stopped: frozenset[str] = frozenset()) -> list[str]:
    """Return what is wrong, one line for each violation.

    Args:
        limit: seconds that any call may take.
        stopped: clients that were stopped for a while, whose calls may have taken any time.
    """
    history = History(calls)
    return [
        *_messages(history),
        *_order(history),
        *_overlaps(history),
        *_attempts(history),
        *_false_nothing(history),
        *_calls(history, limit, stopped),
    ]


def _messages(history: History) -> Iterator[str]:
    """Yield messages that were lost, doubled or invented, or delivered after their ack."""
    known = {call.arguments["event"]: call for call in history.published}
    for event, call in known.items():
        deliveries = history.by_message.get(event, [])
        acks = [delivery for delivery in deliveries if delivery.acked]
        if call.ok and call.result != "rolled back" and not deliveries:
            yield f"lost: {event} of {call.arguments['group_id']} was published as {call.result}, and never delivered"
        if len({delivery.claim.result["seq"] for delivery in deliveries}) > 1:
            yield f"doubled: {event} was delivered as two messages"
        if call.ok and call.result == "rolled back" and deliveries:
            yield f"invented: {event} was rolled back, and delivered"
        if len(acks) > 1:
            yield f"doubled: {event} was acked {len(acks)} times"
        for ack in acks[:1]:
            done = ack.acked
            assert done is not None
            for again in deliveries:
                if again.claim.start > done.end:
                    yield f"doubled: {event} was acked, and delivered again to {again.claim.who}"
    for event in set(history.by_message) - set(known):
        yield f"invented: {event} was delivered, and never published"


def _order(history: History) -> Iterator[str]:
    """Check the order in each group: if one publish returned before another began, its message is acked before the
    other is delivered."""
    for calls in history.confirmed.values():
        last = LastOpen((call.end, _finished_at(history, call), call) for call in calls)
        for later in calls:
            deliveries = history.by_message.get(later.arguments["event"], [])
            if not deliveries:
                continue
            first = min(delivery.claim.end for delivery in deliveries)
            earlier = last.beyond(first, before=later.start)
            if earlier is not None:
                yield (
                    f"order: {later.arguments['event']} was delivered although {earlier.arguments['event']} of the "
                    "same group was published before it, and not finished"
                )


def _finished_at(history: History, published: Call) -> float:
    """Return the first moment at which a message may have been finished. A message that was never delivered is reported
    as lost, and says nothing of the others."""
    deliveries = history.by_message.get(published.arguments["event"], [])
    begun = [
        call.start
        for delivery in deliveries
        for call in delivery.calls
        if call.operation == "ack" and not (call.outcome == "error" and "LeaseLost" in str(call.result))
    ]
    return min(begun, default=NEVER) if deliveries else -NEVER


class LastOpen:
    """Spans of time, each of some call. Finds one that was open at a moment without a look at each of them."""

    def __init__(self, spans: Iterable[tuple[float, float, Call]]) -> None:
        self._begins: list[float] = []
        self._longest: list[tuple[float, Call]] = []
        for begin, end, call in sorted(spans, key=lambda span: span[0]):
            self._begins.append(begin)
            if self._longest and self._longest[-1][0] >= end:
                self._longest.append(self._longest[-1])
            else:
                self._longest.append((end, call))

    def beyond(self, moment: float, *, before: float) -> Call | None:
        """Return a call whose span began before one moment and ends after another, or None."""
        at = bisect_left(self._begins, before)
        if at == 0:
            return None
        end, call = self._longest[at - 1]
        return call if end > moment else None


class Spans:
    """Spans of time. Overlapping ones are joined, so that a look at them is short."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for begin, end in sorted(spans):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def meet(self, begin: float, end: float) -> bool:
        """Return whether one of them has a moment with this span in common."""
        at = bisect_left(self._ends, begin)
        return at < len(self._ends) and self._begins[at] <= end


def _overlaps(history: History) -> Iterator[str]:
    """Two leases on one group at a time; a stale ack that counted."""
    for group, deliveries in history.by_group.items():
        deliveries.sort(key=lambda delivery: delivery.claim.end)
        for number, first in enumerate(deliveries):
            until = first.held_until()
            horizon = max(until, *(call.start for call in first.calls), 0.0)
            for at in range(number + 1, len(deliveries)):
                second = deliveries[at]
                if second.claim.end >= horizon:
                    break  # and so are all that follow
                if first.claim.end < second.claim.start and second.claim.end < until:
                    yield f"overlap: {group} was given to {second.claim.who} while {first.claim.who} held it"
                for call in first.calls:
                    if call.ok and second.claim.end < call.start and second.claim.start > first.claim.end:
                        yield f"stale: {call.operation} of {first.claim.who} on {group} counted after it was given away"


def _attempts(history: History) -> Iterator[str]:
    """The number of deliveries grows with every claim of a message."""
    for event, deliveries in history.by_message.items():
        deliveries.sort(key=lambda delivery: delivery.claim.end)
        for first, second in pairwise(deliveries):
            if second.claim.start > first.claim.end and not (
                second.claim.result["attempts"] > first.claim.result["attempts"]
            ):
                yield f"attempts: {event} was delivered again with attempts {second.claim.result['attempts']}"
        if deliveries and deliveries[0].claim.result["attempts"] < 1:
            yield f"attempts: {event} was delivered with attempts below 1"


def _false_nothing(history: History) -> Iterator[str]:
    """A claim found nothing although a message was certainly deliverable all the time."""
    busy = {
        group: Spans((delivery.claim.start - GRACE, delivery.busy_until()) for delivery in deliveries)
        for group, deliveries in history.by_group.items()
    }
    waiting = {
        group: LastOpen((call.end, _first_ack(history, call), call) for call in calls)
        for group, calls in history.confirmed.items()
    }
    doubtful = Spans(
        (call.start, (call.end if call.end < NEVER else call.start + 30.0) + 15.0) for call in history.doubtful
    )
    for claim in history.empty_claims:
        if claim.arguments.get("min_priority", 0) or doubtful.meet(claim.start, claim.end):
            continue
        for group, messages in waiting.items():
            free = group not in busy or not busy[group].meet(claim.start, claim.end)
            if free and messages.beyond(claim.end, before=claim.start) is not None:
                yield f"nothing: {claim.who} was told that nothing is deliverable, while {group} was"


def _first_ack(history: History, published: Call) -> float:
    """Return when the first ack of a message began, whatever became of it."""
    acks = [
        call.start
        for delivery in history.by_message.get(published.arguments["event"], [])
        for call in delivery.calls
        if call.operation == "ack"
    ]
    return min(acks, default=NEVER)


def _calls(history: History, limit: float, stopped: frozenset[str]) -> Iterator[str]:
    """Yield errors that are not Fairlane's, and calls that took too long."""
    for call in history.calls:
        if call.outcome == "raw":
            yield f"raw: {call.operation} of {call.who} raised {call.result}"
        if call.who not in stopped and call.end < NEVER and call.end - call.start > limit:
            yield f"slow: {call.operation} of {call.who} took {call.end - call.start:.1f} s"
