"""A migration of SQS creates the queue and tags it. It does not change the attributes of an existing queue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import fairlane
from fairlane import ConfigurationError, SchemaNotReady, UnsupportedByBackend, migrate
from fairlane.backends.sqs.address import parse
from fairlane.backends.sqs.executor import make_client
from fairlane.contract import CLIENT_REVISION
from tests.commands import fairlane as fairlane_cli
from tests.conftest import require_server
from tests.harness import Queues

VARIABLE = "FAIRLANE_TEST_SQS_URL"


@pytest.fixture
def url() -> Any:
    require_server(None if os.environ.get(VARIABLE) else f"{VARIABLE} is not set")
    return os.environ[VARIABLE]


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    made = make_client(parse(url, {}))
    yield made
    made.close()


@pytest.fixture
def name(url: str) -> Iterator[Any]:
    fresh = Queues.fresh_name()
    yield fresh
    migrate.downgrade(url, queue=fresh, revision="base")


def test_a_queue_gets_the_documented_attributes_and_a_downgrade_deletes_it(url: str, client: Any, name: str) -> None:
    migrate.upgrade(url, queue=name)
    migrate.upgrade(url, queue=name)
    where = client.get_queue_url(QueueName=f"{name}.fifo")["QueueUrl"]
    found = client.get_queue_attributes(QueueUrl=where, AttributeNames=["All"])["Attributes"]
    assert (found["FifoQueue"], found["ContentBasedDeduplication"]) == ("true", "false")
    assert client.list_queue_tags(QueueUrl=where)["Tags"] == {
        "fairlane:revision": CLIENT_REVISION,
        "fairlane:serves": "0001",
    }
    migrate.downgrade(url, queue=name, revision="base")
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName=f"{name}.fifo")


def test_a_queue_that_somebody_made_keeps_its_attributes_and_is_ready_once_tagged(
    url: str, client: Any, name: str
) -> None:
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "77"}
    where = client.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    with pytest.raises(SchemaNotReady):
        fairlane.connect(url, name)
    migrate.upgrade(url, queue=name)
    found = client.get_queue_attributes(QueueUrl=where, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert found["VisibilityTimeout"] == "77"
    fairlane.connect(url, name).close()


def test_a_head_start_is_refused(url: str, name: str) -> None:
    for choice in (1, "always"):
        with pytest.raises((UnsupportedByBackend, ConfigurationError)):
            migrate.upgrade(url, queue=name, head_start=choice)


def test_the_command_line_says_that_the_figures_are_approximate(url: str, name: str) -> None:
    fairlane_cli("migrate", "--url", url, "--queue", name).ok()
    shown = fairlane_cli("stats", "--url", url, "--queue", name).ok()
    assert "None" not in shown.out
    assert shown.err == "sqs gives only these figures, and they are approximate.\n"
    assert fairlane_cli("stats", "--url", url, "--queue", name, "--json").ok().json["groups"] is None
    refused = fairlane_cli("groups", "--url", url, "--queue", name).failed_in_one_line()
    assert "SQS shows a message only to the worker that claims it" in refused
