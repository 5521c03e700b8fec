"""Try a program again after a failure, and send a request again if its answer was lost.

A policy decides after each failure whether there is another try, and how long to wait before it. A request that may
have been carried out is sent again only if carrying it out twice does no harm.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from fairlane.errors import BackendUnavailable
from fairlane.program import AnswerT, Program, RequestT, ResultT, Sleep

Policy: TypeAlias = Callable[[Exception], float | None]
"""Takes the error of a try, and returns the seconds to wait before the next try. None means to raise the error."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Random pauses between tries. Clients that failed at the same time should not try again at the same time.

    Attributes:
        first: maximum seconds before the second try.
        longest: maximum seconds before any later try.
        growth: the factor by which the maximum grows from one try to the next.
        least: the smallest pause, as a part of the maximum, 0 to 1.
    """

    first: float
    longest: float
    growth: float = 2.0
    least: float = 0.5

    def after(self, tries: int) -> float:
        """Return the seconds to wait after this number of tries, 1 or more."""
        most = self.first
        for _ in range(tries - 1):
            if most >= self.longest:
                break
            most *= self.growth
        return min(most, self.longest) * random.uniform(self.least, 1.0)


STARTUP_PAUSES = Pauses(0.05, 1.0, growth=1.6, least=0.625)
"""Pauses while a server is not up yet."""


class Within:
    """A policy: try again after certain errors, until a time is over. The last try is at that time.

    Args:
        seconds: time for all tries, from now on; 0 means one try.
        pauses: the pauses between two tries.
        again: the errors after which another try may succeed and does no harm.
    """

    def __init__(self, seconds: float, pauses: Pauses, again: type[Exception] | Callable[[Exception], bool]) -> None:
        self._ends = time.monotonic() + seconds
        self._pauses = pauses
        self._again = again
        self._tries = 0

    def __call__(self, error: Exception) -> float | None:
        """Return the seconds to wait after this error, or None for no other try."""
        known = isinstance(error, self._again) if isinstance(self._again, type) else self._again(error)
        left = self._ends - time.monotonic()
        if not known or left <= 0:
            return None
        self._tries += 1
        return min(left, self._pauses.after(self._tries))


def retried(
    attempt: Callable[[], Program[RequestT, AnswerT, ResultT]], policy: Policy
) -> Program[RequestT, AnswerT, ResultT]:
    """Run the program that `attempt` returns, a new one for each try, until it succeeds or the policy returns None."""
    while True:
        try:
            return (yield from attempt())
        except Exception as error:
            pause = policy(error)
            if pause is None:
                raise
        if pause > 0:
            yield Sleep(pause)


def ask(request: RequestT) -> Program[RequestT, AnswerT, AnswerT]:
    """Send one request and return its answer. This is a program, so that `retried` can try it again."""
    return (yield request)


class Refused(Exception):
    """Raised by an executor for its core: the server refused a request, and nothing was changed. Never leaves a core.

    Attributes:
        error: the error to raise, unless the reason is that the queue does not exist.
        constraint: whether the request violated a constraint of a table.
    """

    def __init__(self, error: Exception, *, constraint: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.constraint = constraint


class Unanswered(Exception):
    """Raised by an executor for its core: no server that can carry out the request answered. Never leaves a core.

    Args:
        backend: name of the backend, for the message.
        host: address of the server, for the message.
        reason: what happened, for the message.
        uncertain: whether the request may have been carried out. If False, it was certainly not.
        seconds: time for which trying again may help.
        pauses: the pauses between two tries.
        elsewhere: number of tries that may follow without a pause, since each goes to another server.
    """

    def __init__(
        self,
        backend: str,
        host: str,
        reason: str,
        *,
        uncertain: bool,
        seconds: float,
        pauses: Pauses,
        elsewhere: int = 0,
    ) -> None:
        super().__init__(reason)
        self.backend = backend
        self.host = host
        self.reason = reason
        self.uncertain = uncertain
        self.seconds = seconds
        self.pauses = pauses
        self.elsewhere = elsewhere

    def error(self, *, uncertain: bool) -> BackendUnavailable:
        """Return the error for the caller, with the reason of this try and the outcome of all tries."""
        outcome = "whether the request was carried out is not known" if uncertain else "nothing was changed"
        return BackendUnavailable(self.backend, self.host, f"{self.reason} ({outcome})")


@runtime_checkable
class Timed(Protocol):
    """A request with a deadline.

    Attributes:
        ends: the deadline for the answer, by time.monotonic(). The executor sets it if it is None.
    """

    ends: float | None


class _Delivery:
    """A policy for one request.

    A request that was certainly not carried out is sent again. One that may have been carried out is sent again only
    if it is repeatable.
    """

    def __init__(self, request: object, repeatable: bool, seconds: float | None) -> None:
        self.uncertain = False
        self._request = request
        self._repeatable = repeatable
        self._seconds = seconds
        self._began = time.monotonic()
        self._tries = 0
        self._in_a_row = 0
        self._pauses = 0

    def __call__(self, error: Exception) -> float | None:
        if not isinstance(error, Unanswered):
            return None
        self.uncertain = self.uncertain or error.uncertain
        self._in_a_row += 1
        now = time.monotonic()
        self._tries += 1
        window = error.seconds if self._seconds is None else self._seconds
        left = window - (now - self._began)
        left_in_all = self._request.ends - now if isinstance(self._request, Timed) and self._request.ends else math.inf
        if left_in_all <= 0 or (self.uncertain and not self._repeatable):
            return None
        # if the first request took the whole time, there is one more try, to another node or on a new connection
        late = left <= 0 and (self._tries > 1 or window == 0)
        if self._in_a_row <= error.elsewhere:
            return None if late and error.uncertain else 0.0
        self._in_a_row = 0
        self._pauses += 1
        pause = max(0.0, min(left, error.pauses.after(self._pauses)))
        return None if late or pause >= left_in_all else pause


def delivered(
    request: RequestT, *, repeatable: bool, seconds: float | None = None
) -> Program[RequestT, AnswerT, AnswerT]:
    """Send a request until it is answered, and return the answer.

    Args:
        request: if it is `Timed`, there is no other try after its `ends`.
        repeatable: whether carrying it out twice does no harm.
        seconds: time for all tries; None means the time that the failure names; 0 is one try with each server.

    Raises:
        BackendUnavailable: there was no answer. The message says whether the request may have been carried out.
    """
    delivery = _Delivery(request, repeatable, seconds)
    try:
        return (yield from retried(lambda: ask(request), delivery))
    except Unanswered as failure:
        raise failure.error(uncertain=delivery.uncertain) from failure.__cause__
