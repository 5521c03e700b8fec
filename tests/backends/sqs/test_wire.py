"""Ids, bodies, tokens, errors and URLs are translated correctly between Fairlane and SQS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from fairlane import AuthenticationFailed, ConfigurationError
from fairlane.backends.shared.retry import Unanswered
from fairlane.backends.sqs import address as sqs_address
from fairlane.backends.sqs import wire as sqs_wire
from fairlane.backends.sqs.errors import MISSING, code_of, translate


def refused(code: Any, status: int = 400) -> Any:
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "SendMessage")


@pytest.mark.parametrize("text", ["a", "!~", "x" * 128, ":{}'\"%s"])
def test_ids_that_sqs_accepts_are_sent_unchanged(text: str) -> None:
    assert sqs_wire.id_of(text) == text
    assert sqs_wire.group_attributes(text, text) == {}


@pytest.mark.parametrize("text", ["é", "a b", "a\n", "x" * 129, "\x01", "\ufffe", "fairlane:sha256:" + "0" * 64])
def test_ids_that_sqs_refuses_or_that_look_like_a_hash_are_sent_as_a_hash(text: str) -> None:
    sent = sqs_wire.id_of(text)
    assert sent != text
    assert sqs_wire.id_of(text) == sent
    assert sqs_wire._PLAIN.fullmatch(sent)
    received = {"Attributes": {"MessageGroupId": sent}, "MessageAttributes": sqs_wire.group_attributes(text, sent)}
    assert sqs_wire.group_of(received) == text


@pytest.mark.parametrize("event", ["\ufffe", "\\\ufffe", {"\uffff": "\ufffd\x7f\0\U0001fffe"}])
def test_bodies_hold_nothing_that_xml_forbids_and_come_back_equal(event: Any) -> None:
    body = sqs_wire.body_of(json.dumps(event, ensure_ascii=False))
    assert not set(body) & {"\ufffe", "\uffff"}
    assert json.loads(body) == event


def test_tokens_belong_to_one_message() -> None:
    token = sqs_wire.token_of("ab#c", "g", 7, 1000)
    assert sqs_wire.handle_of(token, "g", 7) == ("ab#c", 1000)
    assert sqs_wire.handle_of(token, "h", 7) is None
    assert sqs_wire.handle_of(token, "g", 8) is None
    for made_up in ("ab#c", "", token.rpartition("~")[0]):
        assert sqs_wire.handle_of(made_up, "g", 7) is None


def test_errors_are_told_apart_by_their_codes() -> None:
    for code in ("InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied", "com.amazon#ExpiredTokenException"):
        assert isinstance(translate(refused(code, 403), "host"), AuthenticationFailed)
    assert isinstance(translate(NoCredentialsError(), "host"), AuthenticationFailed)
    assert "sqs:SendMessage" in str(translate(refused("AccessDenied", 403), "host"))
    unreachable = EndpointConnectionError(endpoint_url="http://host")
    for error, uncertain in (
        (refused("InternalError", 500), True),
        (ReadTimeoutError(endpoint_url="http://host"), True),
        (ConnectionClosedError(endpoint_url="http://host"), True),
        (refused("X", 503), True),
        (refused("RequestThrottled"), False),
        (ConnectTimeoutError(endpoint_url="http://host"), False),
        (unreachable, False),
    ):
        known = translate(error, "host")
        assert isinstance(known, Unanswered)
        assert known.uncertain is uncertain
    assert translate(refused("ReceiptHandleIsInvalid"), "host") is None
    assert code_of(refused("AWS.SimpleQueueService.NonExistentQueue")) in MISSING


def test_urls_say_region_endpoint_and_credentials() -> None:
    address = sqs_address.parse("sqs://key:se%2Fcret@eu-west-1/?endpoint=http://127.0.0.1:9324/", {})
    assert (address.region, address.endpoint) == ("eu-west-1", "http://127.0.0.1:9324")
    assert address.credentials == ("key", "se/cret")
    assert address.host == "127.0.0.1:9324"
    assert "cret" not in repr(address)
    assert sqs_address.parse("sqs://eu-west-1", {}).credentials is None


@pytest.mark.parametrize(
    "url",
    ["sqs://", "sqs:///", "sqs://key@eu-west-1/", "sqs://key:hidden/word@eu-west-1/", "sqs://eu-west-1/queue",
     "sqs://eu-west-1/?no_such=1", "sqs://eu-west-1/?endpoint=host", "sqs://eu-west-1/?endpoint=http://u:hidden@h",
     "sqs://eu-west-1/?endpoint=http://h/path", "sqs://eu-west-1/?endpoint="],
)  # fmt: skip
def test_wrong_urls_are_refused_without_the_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sqs_address.parse(url, {})
    assert "hidden" not in str(caught.value)
