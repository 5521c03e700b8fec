"""URLs and clients of the application are read correctly, and driver errors become typed ones. No server is needed."""

from __future__ import annotations

from typing import Any

import pymongo
import pytest
from pymongo import errors

from fairlane.backends.mongo.address import database_of, hosts_of, make, shortest_timeout
from fairlane.backends.mongo.errors import translate
from fairlane.backends.mongo.executor import AsyncMongoExecutor, MongoExecutor
from fairlane.backends.mongo.transports import AsyncMongoTransport, MongoTransport
from fairlane.backends.shared.retry import Unanswered
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventTooLarge,
    FairlaneError,
)


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:se/cret-word@host/",
        "mongodb://user:secret-word@host:99999/",
        "mongodb://user:secret-word@/db",
        "mongodb://user:secret@word@host/?directConnection=maybe",
        "mongodb://user:secret-word@host/?w=-1",
        "mongodb://user:secret-word@host/?no_such=1",
        "mongodb+srv://user:secret-word@host.invalid/?no_such=1",
    ],
)
@pytest.mark.parametrize("executor", [MongoExecutor, AsyncMongoExecutor])
def test_a_wrong_url_is_one_typed_error_without_the_password(
    executor: type[MongoExecutor | AsyncMongoExecutor], url: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        executor.from_url(url, "q")
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"
    assert "cret-word" not in str(caught.value)


def test_the_path_names_the_database() -> None:
    assert database_of(make(pymongo.MongoClient, "mongodb://host/orders?authSource=admin"), None).name == "orders"
    assert database_of(make(pymongo.MongoClient, "mongodb://host/"), None).name == "fairlane"
    assert database_of(make(pymongo.MongoClient, "mongodb://host/orders"), "jobs").name == "jobs"


def test_an_srv_url_is_not_resolved_before_it_is_used() -> None:
    assert database_of(make(pymongo.MongoClient, "mongodb+srv://host.invalid/orders"), None).name == "orders"


def test_options_of_srv_urls_pass() -> None:
    client = make(pymongo.MongoClient, "mongodb+srv://host.invalid/?srvMaxHosts=2&retryWrites=true&tls=false")
    assert database_of(client, None).name == "fairlane"


def test_promises_do_not_depend_on_the_clients_settings() -> None:
    client: pymongo.MongoClient[Any] = pymongo.MongoClient(
        "mongodb://host/?w=0&readPreference=secondary", connect=False, tz_aware=False
    )
    database = database_of(client, None)
    assert database.write_concern.document == {"w": "majority"}
    assert database.read_preference == pymongo.ReadPreference.PRIMARY
    assert database.codec_options.tz_aware


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("mongodb://host/", 30.0),
        ("mongodb://host/?timeoutMS=700", 0.7),
        ("mongodb://host/?socketTimeoutMS=800", 0.8),
        ("mongodb://host/?timeoutMS=90000", 30.0),
    ],
)
def test_the_shorter_timeout_of_the_url_and_the_option_counts(url: str, seconds: float) -> None:
    assert shortest_timeout(make(pymongo.MongoClient, url), 30.0) == seconds


def test_the_time_to_look_for_a_primary_may_be_in_the_url() -> None:
    assert make(pymongo.MongoClient, "mongodb://host/").options.server_selection_timeout == 5
    theirs = make(pymongo.MongoClient, "mongodb://host/?serverSelectionTimeoutMS=900&timeout=3")
    assert theirs.options.server_selection_timeout == 0.9


@pytest.mark.parametrize("kind", [pymongo.MongoClient, pymongo.AsyncMongoClient])
def test_the_addresses_of_an_applications_client_are_known_without_connecting(kind: type) -> None:
    client = kind("mongodb://user:secret-word@one:27018,two", connect=False)
    assert hosts_of(client) == "one:27018,two:27017"


def test_options_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="database"):
        MongoExecutor.from_url("mongodb://host/", "q", databse="typo")
    with pytest.raises(ConfigurationError, match="name of a database"):
        MongoExecutor.from_url("mongodb://host/", "q", database="a b$/")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.OperationFailure("Authentication failed.", 18), AuthenticationFailed),
        (errors.OperationFailure("bad auth", 8000), AuthenticationFailed),
        (errors.OperationFailure("Authentication failed"), AuthenticationFailed),
        (errors.OperationFailure("not authorized on fairlane", 13), AuthenticationFailed),
        (errors.ServerSelectionTimeoutError("refused, Timeout: 5s, Topology Description: …"), BackendUnavailable),
        (errors.AutoReconnect("connection closed"), BackendUnavailable),
        (errors.NetworkTimeout("timed out"), BackendUnavailable),
        (errors.NotPrimaryError("not primary"), BackendUnavailable),
        (errors.InvalidOperation("Cannot use MongoClient after close"), BackendUnavailable),
        (errors.ExecutionTimeout("operation exceeded time limit", 50), BackendUnavailable),
        (errors.WTimeoutError("waiting for replication timed out", 64), BackendUnavailable),
        (errors.OperationFailure("no space left", 14031), BackendFull),
        (errors.DocumentTooLarge("too large"), EventTooLarge),
        (errors.OperationFailure("object too large", 10334), EventTooLarge),
        (errors.ConfigurationError("no such option"), ConfigurationError),
    ],
)
def test_known_driver_errors_become_typed_errors(error: Exception, expected: type[FairlaneError]) -> None:
    known = translate(error, "host:27017")
    if isinstance(known, Unanswered):
        known = known.error(uncertain=known.uncertain)
    assert type(known) is expected
    assert "Topology" not in str(known)


def test_other_driver_errors_pass_unchanged() -> None:
    assert translate(errors.OperationFailure("unknown operator", 2), "host") is None
    assert translate(RuntimeError("no"), "host") is None


@pytest.mark.parametrize(
    ("error", "uncertain"),
    [
        (errors.ServerSelectionTimeoutError("refused"), False),
        (errors.WaitQueueTimeoutError("timed out"), False),
        (errors.NotPrimaryError("not primary", {"code": 10107}), False),
        (errors.AutoReconnect("connection closed"), True),
        (errors.NetworkTimeout("timed out"), True),
        (errors.WTimeoutError("waiting for replication timed out", 64), True),
    ],
)
def test_errors_tell_whether_a_request_may_have_been_carried_out(error: Exception, uncertain: bool) -> None:
    known = translate(error, "host")
    assert isinstance(known, Unanswered)
    assert known.uncertain is uncertain


def test_a_full_pool_and_a_missing_right_are_told_apart_from_a_server_that_is_down() -> None:
    assert "maxPoolSize" in str(translate(errors.WaitQueueTimeoutError("timed out"), "host"))
    missing = str(translate(errors.OperationFailure("not authorized", 13), "host", "insert in q_messages"))
    assert "may not insert in q_messages" in missing
    assert "readWrite" in missing


async def test_an_applications_client_that_is_closed_is_unavailable() -> None:
    client = pymongo.MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False)
    client.close()
    with pytest.raises(BackendUnavailable, match=r"its client was closed \(nothing was changed"):
        MongoTransport(client).publish("g", 1)
    other = pymongo.AsyncMongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False)
    await other.close()
    with pytest.raises(BackendUnavailable, match=r"its client was closed \(nothing was changed"):
        await AsyncMongoTransport(other).publish("g", 1)
