"""The programs of SQS handle answers that a test server does not give."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlane import BackendUnavailable, EventTooLarge, Lease, LeaseLost, UnsupportedByBackend
from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.backends.sqs import wire as sqs_wire
from fairlane.backends.sqs.core import Recent, SqsCore
from fairlane.program import run


def refused(code: Any) -> Any:
    return ClientError({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "x")


class Script:
    """Gives the next answer for each request, and keeps the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("fairlane.program.time.sleep", lambda seconds: None)
    return SqsCore("q")


def lease(end: Any) -> Any:
    now = datetime.now(UTC)
    return Lease("g", 1, 5, sqs_wire.token_of("handle", "g", 5, end), 1, now, now)


def unanswered(reason: Any, *, uncertain: Any) -> Any:
    return Unanswered("sqs", "host", reason, uncertain=uncertain, seconds=1.0, pauses=Pauses(0.01, 0.01))


LOST = unanswered("the answer was lost", uncertain=True)


def test_a_publish_or_claim_whose_answer_was_lost_is_sent_again_with_the_same_id(core: SqsCore) -> None:
    script = Script(LOST, {"SequenceNumber": "9"})
    assert run(core.publish("g", "1", 0, None), script) == 9
    assert script.asked[0] == script.asked[1]
    script = Script(LOST, {})
    assert run(core.claim("w", 30, 0, Lease), script) is None
    assert script.asked[0] == script.asked[1]
    assert script.asked[0].arguments["ReceiveRequestAttemptId"]


@pytest.mark.parametrize("operation", [SqsCore.ack, lambda c, x: c.nack(x, 0), lambda c, x: c.extend(x, 30)])
def test_an_ack_nack_or_extend_whose_answer_was_lost_is_not_sent_again(core: SqsCore, operation: Any) -> None:
    script = Script(LOST)
    with pytest.raises(BackendUnavailable):
        run(operation(core, lease(9_999_999_999)), script)
    assert len(script.asked) == 1


def test_a_request_that_sqs_was_too_busy_for_is_sent_again(core: SqsCore) -> None:
    script = Script(unanswered("busy", uncertain=False), {})
    run(core.ack(lease(9_999_999_999)), script)
    assert len(script.asked) == 2


@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight"])
def test_a_receipt_that_sqs_refuses_is_a_lost_lease(core: SqsCore, code: Any) -> None:
    with pytest.raises(LeaseLost):
        run(core.ack(lease(9_999_999_999)), Script(refused(code)))


def test_an_extension_stops_twelve_hours_after_the_claim(core: SqsCore) -> None:
    script = Script({})
    end = int(datetime.now(UTC).timestamp()) + 100
    until = run(core.extend(lease(end), 3600), script)
    assert 97 <= script.asked[0].arguments["VisibilityTimeout"] <= 100
    assert until.timestamp() <= end + 1


@pytest.mark.parametrize("code", ["InvalidParameterValue", "InvalidAttributeValue"])
def test_the_limit_of_a_body_is_the_servers(core: SqsCore, code: Any) -> None:
    limit = {"Attributes": {"MaximumMessageSize": "1024"}}
    with pytest.raises(EventTooLarge) as caught:
        run(core.publish("g", "x" * 2000, 0, None), Script(refused(code), limit))
    assert (caught.value.size, caught.value.limit) == (2000, 1024)
    with pytest.raises(ClientError):
        run(core.publish("g", "x" * 20, 0, None), Script(refused(code), limit))


def test_what_sqs_cannot_do_is_refused(core: SqsCore) -> None:
    for arguments in ({"priority": 1}, {"min_priority": 4}, {"delay": 43_201.0}):
        with pytest.raises(UnsupportedByBackend):
            core.check_arguments("any", arguments)
    core.check_arguments("nack", {"delay": 43_200.0})
    for program in (core.group_status(1), core.message_status("g", 1)):
        with pytest.raises(UnsupportedByBackend):
            run(program, Script())


@pytest.mark.parametrize("late", [SqsCore.ack, lambda c, x: c.nack(x, 0), lambda c, x: c.extend(x, 30)])
@pytest.mark.parametrize("first", [SqsCore.ack, lambda c, x: c.nack(x, 0)], ids=["ack", "nack"])
def test_a_lease_that_was_acked_or_nacked_is_refused_without_asking_sqs(core: SqsCore, first: Any, late: Any) -> None:
    """SQS accepts the receipt until the next claim: an extend would undo the nack, an ack would delete the message."""
    script = Script({})
    run(first(core, lease(9_999_999_999)), script)
    with pytest.raises(LeaseLost):
        run(late(core, lease(9_999_999_999)), script)
    assert len(script.asked) == 1


def test_a_lease_whose_nack_failed_still_holds(core: SqsCore) -> None:
    with pytest.raises(BackendUnavailable):
        run(core.nack(lease(9_999_999_999), 0), Script(LOST))
    run(core.ack(lease(9_999_999_999)), Script({}))


def test_what_is_remembered_of_leases_is_bounded() -> None:
    recent = Recent(3)
    for number in range(10):
        recent.add(str(number))
    assert [str(number) in recent for number in range(10)] == [False] * 7 + [True] * 3
