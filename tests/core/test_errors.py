"""Errors travel between processes, carry their data, and never hold a password."""

from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlane import Lease, errors

NOW = datetime(2024, 1, 1, tzinfo=UTC)
LEASE = Lease("g", '"text"', 7, "token", 2, NOW, NOW)
MADE = [
    errors.FairlaneError("something"),
    errors.LeaseLost("g", 7),
    errors.EventEncodingError("a reason"),
    errors.EventTooLarge(10, 5),
    errors.EventTooLarge(None, None),
    errors.EventDecodingError(LEASE),
    errors.SchemaNotReady("orders", None, "0001"),
    errors.SchemaNotReady("orders", "0000", "0001"),
    errors.SchemaNotReady("orders", "0009", "0001", "0005"),
    errors.BackendError("redis", "host:1", "refused"),
    errors.BackendUnavailable("redis", "host:1", "refused"),
    errors.AuthenticationFailed("redis", "host:1"),
    errors.BackendFull("redis", "host:1", "maxmemory"),
    errors.UnsupportedByBackend("sqs", "priorities"),
    errors.ConfigurationError("wrong"),
    errors.MissingExtra("postgres"),
    errors.QueueDamaged("orders", "wrong"),
    errors.TransportClosed(),
]


def test_the_table_has_every_class() -> None:
    classes = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
    assert classes == {type(error) for error in MADE}
    assert all(issubclass(kind, errors.FairlaneError) for kind in classes)


@pytest.mark.parametrize("error", MADE, ids=repr)
@pytest.mark.parametrize("way", [*range(pickle.HIGHEST_PROTOCOL + 1), "copy"])
def test_an_error_survives_pickling(error: Any, way: Any) -> None:
    again = copy.copy(error) if way == "copy" else pickle.loads(pickle.dumps(error, way))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == error.args


def test_errors_say_what_to_do() -> None:
    assert "fairlane migrate --queue orders" in str(errors.SchemaNotReady("orders", None, "0001"))
    assert "upgrade the fairlane package" in str(errors.SchemaNotReady("orders", "0009", "0001", "0005"))
    assert "pip install 'fairlane[postgres]'" in str(errors.MissingExtra("postgres"))


def test_errors_are_also_what_python_expects() -> None:
    assert issubclass(errors.EventEncodingError, ValueError)
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert issubclass(errors.EventTooLarge, errors.EventEncodingError)
