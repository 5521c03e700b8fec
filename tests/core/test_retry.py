"""The shared retry program: when it tries again, how often, after which errors, and which error it raises at the
end."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fairlane import BackendUnavailable
from fairlane.backends.shared.retry import Pauses, Unanswered, Within, ask, delivered, retried
from fairlane.program import Program, Sleep, run

PAUSES = Pauses(0.01, 0.04)


class Server:
    """Gives the prepared answers in order, and then the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, request: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def failure(*, uncertain: bool = False, seconds: float = 5.0, elsewhere: int = 0) -> Any:
    return Unanswered(
        "toy", "host:1", "it is away", uncertain=uncertain, seconds=seconds, pauses=PAUSES, elsewhere=elsewhere
    )


def steps(program: Any, answers: Any) -> Any:
    """Return what a program yields if its requests get these answers: the seconds of each pause, otherwise the
    request."""
    seen = []
    answers = iter(answers)
    step = next(program)
    while True:
        seen.append(step.seconds if isinstance(step, Sleep) else step)
        try:
            if isinstance(step, Sleep):
                step = program.send(None)
                continue
            answer = next(answers)
            step = program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
        except StopIteration as done:
            return seen, done.value
        except BackendUnavailable as error:
            return seen, error


def test_pauses_grow_up_to_a_limit_and_are_drawn_at_random() -> None:
    pauses = Pauses(0.1, 0.5, growth=2.0, least=0.5)
    for tries, most in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5000, 0.5)):
        drawn = [pauses.after(tries) for _ in range(200)]
        assert most / 2 <= min(drawn) < 0.6 * most < 0.9 * most < max(drawn) <= most


def test_only_the_errors_named_are_tried_again() -> None:
    server = Server(BackendUnavailable("toy", "h", "away"), ValueError("wrong"), "never asked")
    with pytest.raises(ValueError, match="wrong"):
        run(retried(lambda: ask("?"), Within(5, PAUSES, BackendUnavailable)), server)
    assert server.asked == 2
    server = Server(KeyError(1), KeyError(2), "never asked")
    with pytest.raises(KeyError, match="2"):
        run(retried(lambda: ask("?"), Within(5, PAUSES, lambda error: error.args == (1,))), server)


def test_without_time_there_is_one_try_and_its_error_is_raised_unchanged() -> None:
    away = BackendUnavailable("toy", "h", "away")
    server = Server(away)
    with pytest.raises(BackendUnavailable) as caught:
        run(retried(lambda: ask("?"), Within(0, PAUSES, BackendUnavailable)), server)
    assert caught.value is away
    assert server.asked == 1


def test_tries_end_with_the_time_and_the_last_try_is_at_the_end() -> None:
    server = Server(BackendUnavailable("toy", "h", "away"))
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        run(retried(lambda: ask("?"), Within(0.3, PAUSES, BackendUnavailable)), server)
    assert 0.3 <= time.monotonic() - began < 2
    assert server.asked > 5


def test_a_signal_handlers_exception_ends_the_tries() -> None:
    program: Program[Any, Any, Any] = retried(lambda: ask("?"), Within(5, PAUSES, Exception))
    next(program)
    with pytest.raises(KeyboardInterrupt):
        program.throw(KeyboardInterrupt())


def test_what_was_certainly_not_carried_out_is_sent_again_whatever_it_is() -> None:
    seen, answer = steps(delivered("ack", repeatable=False), [failure(), failure(), "done"])
    assert answer == "done"
    assert seen[0::2] == ["ack", "ack", "ack"]
    assert 0.005 <= seen[1] <= 0.01 <= seen[3] <= 0.02


def test_what_may_have_been_carried_out_is_sent_again_only_if_that_does_no_harm() -> None:
    seen, answer = steps(delivered("publish", repeatable=True), [failure(uncertain=True), "done"])
    assert (seen[0], seen[2], answer) == ("publish", "publish", "done")
    seen, error = steps(delivered("ack", repeatable=False), [failure(uncertain=True)])
    assert seen == ["ack"]
    assert "not known" in str(error)


def test_an_unknown_outcome_is_not_forgotten_after_later_failures() -> None:
    """First an answer is lost, then the server refuses. The error must not say that nothing was changed."""
    seen, error = steps(delivered("p", repeatable=True, seconds=0), [failure()])
    assert (seen, "nothing was changed" in str(error)) == (["p"], True)
    answers = [failure(uncertain=True), *[failure(seconds=0.0)] * 2]
    seen, error = steps(delivered("p", repeatable=True), answers)
    assert "not known" in str(error)
    assert error.__cause__ is None


def test_other_servers_are_asked_at_once_and_then_after_a_pause() -> None:
    seen, answer = steps(delivered("p", repeatable=True), [*[failure(elsewhere=2)] * 4, "done"])
    assert answer == "done"
    assert [step if step == "p" else "pause" for step in seen] == ["p", "p", "p", "pause", "p", "p"]


@pytest.mark.parametrize("elsewhere", [0, 2])
def test_after_a_first_request_that_took_all_the_time_there_is_another_one(elsewhere: int) -> None:
    """Guards against a cluster in which one node hangs and the others are never asked."""
    program: Program[str, str, str] = delivered("p", repeatable=True)
    step = next(program)
    time.sleep(0.05)
    step = program.throw(failure(uncertain=True, seconds=0.01, elsewhere=elsewhere))
    assert step == "p"
    with pytest.raises(BackendUnavailable, match="not known"):
        program.throw(failure(uncertain=True, seconds=0.01))


def test_without_time_each_server_gets_one_try() -> None:
    seen, _ = steps(delivered("p", repeatable=True, seconds=0), [failure(elsewhere=2)] * 9)
    assert seen == ["p", "p", "p"]
    seen, _ = steps(delivered("p", repeatable=True, seconds=0), [failure(elsewhere=2, uncertain=True)] * 9)
    assert seen == ["p"], "an answer that did not come has taken its time"
