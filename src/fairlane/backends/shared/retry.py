"""The one way to try again, as a program; and what becomes of a request to a server that may have lost the answer.

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
"""Takes the error of a try, returns seconds to wait before the next one; None: there is none, the error is raised."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait between two tries: at random, since clients that failed together would fail together again.

    Attributes:
        first: seconds before the second try, at most.
        longest: seconds before any other, at most.
        growth: by which factor this maximum grows from one try to the next.
        least: the smallest part of the maximum that a pause may be, 0 to 1.
    """

    first: float
    longest: float
    growth: float = 2.0
    least: float = 0.5

    def after(self, tries: int) -> float:
        """Return the seconds to wait after so many tries, from 1 on."""
        most = self.first
        for _ in range(tries - 1):
            if most >= self.longest:
                break
            most *= self.growth
        return min(most, self.longest) * random.uniform(self.least, 1.0)


STARTUP_PAUSES = Pauses(0.05, 1.0, growth=1.6, least=0.625)
"""For a server that is not up yet."""


class Within:
    """A policy: try again after certain errors, until so many seconds are over. The last try is at that moment.

    Args:
        seconds: from now on; 0 is one try.
        pauses: between two tries.
        again: the errors after which another try makes sense, and does no harm.
    """

    def __init__(self, seconds: float, pauses: Pauses, again: type[Exception] | Callable[[Exception], bool]) -> None:
        self._ends = time.monotonic() + seconds
        self._pauses = pauses
        self._again = again
        self._tries = 0

    def __call__(self, error: Exception) -> float | None:
        """Return the seconds to wait after this error, None for no other try."""
        known = isinstance(error, self._again) if isinstance(self._again, type) else self._again(error)
        left = self._ends - time.monotonic()
        if not known or left <= 0:
            return None
        self._tries += 1
        return min(left, self._pauses.after(self._tries))


def retried(
    attempt: Callable[[], Program[RequestT, AnswerT, ResultT]], policy: Policy
) -> Program[RequestT, AnswerT, ResultT]:
    """Run the program that `attempt` returns, a new one for each try, until it succeeds or the policy ends it."""
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
    """Return the answer to one request. As a program of its own, it can be tried again."""
    return (yield request)


class Refused(Exception):
    """Told by an executor to its core: the server refused a request, and nothing was changed. Never leaves a core.

    Attributes:
        error: what to raise if the queue is there, so that this is not the reason.
        constraint: a constraint of a table was violated.
    """

    def __init__(self, error: Exception, *, constraint: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.constraint = constraint


class Unanswered(Exception):
    """Told by an executor to its core: no server that could carry a request out has answered. Never leaves a core.

    Args:
        backend: its name, for people.
        host: where it is, for people.
        reason: what happened, for people.
        uncertain: the request may have been carried out; else it was certainly not.
        seconds: for which it makes sense to try again.
        pauses: between two tries.
        elsewhere: how many tries may follow at once, since the next one goes to another server.
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
        """Return what callers see, of the last try and what is known of all of them."""
        outcome = "whether the request was carried out is not known" if uncertain else "nothing was changed"
        return BackendUnavailable(self.backend, self.host, f"{self.reason} ({outcome})")


@runtime_checkable
class Timed(Protocol):
    """A request whose caller must have an answer by a certain time.

    Attributes:
        ends: by time.monotonic(); the executor fills it in if nobody else has.
    """

    ends: float | None


class _Delivery:
    """A policy for one request: what was certainly not carried out is sent again, what may have been only if it may."""

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
        # a first request that took all of the time is worth another one, to another node or on a new connection
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
    """Send a request until it has been answered, and return the answer.

    Args:
        request: if it is `Timed`, there is no further try after its `ends`.
        repeatable: it does no harm to carry it out twice.
        seconds: after which there is no further try, if not what the failure says; 0 is one try with each server.

    Raises:
        BackendUnavailable: it says whether the request may have been carried out.
    """
    delivery = _Delivery(request, repeatable, seconds)
    try:
        return (yield from retried(lambda: ask(request), delivery))
    except Unanswered as failure:
        raise failure.error(uncertain=delivery.uncertain) from failure.__cause__
