"""Clients of MongoDB: made from URLs, with deadlines, and their errors translated.

The URL is pymongo's; the path names the database, `fairlane` unless given. What it says about timeouts counts; what it
says about write concern and read preference does not, since the promises need `majority` and the primary.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any
from urllib.parse import unquote

import pymongo
from bson.codec_options import CodecOptions
from pymongo import errors
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options

from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventTooLarge,
    FairlaneError,
)

DATABASE = "fairlane"
SELECTION_SECONDS = 5
"""For which a request looks for a primary, as during an election."""

ANSWER_SECONDS = 20
"""For which a request waits for its answer. pymongo may send it once more then, where that is safe."""

_CREDENTIALS = (18, 8000)  # AuthenticationFailed; AtlasError, which hosted servers give for a bad login
_NO_CODE = "Authentication failed"  # of servers that speak the protocol, but leave the code out
_RIGHTS = (13,)  # Unauthorized
_FULL = (14031,)  # OutOfDiskSpace
_TOO_LARGE = (10334, 17419, 17420)  # BSONObjectTooLarge, and as the result of an update
_UNSURE = (50, 64, 100, 262)  # MaxTimeMSExpired, WriteConcernFailed, UnsatisfiableWriteConcern, ExceededTimeLimit


def make(kind: Any, url: str) -> Any:
    """Return a client of one of pymongo's classes; it connects when it is first used.

    Raises:
        ConfigurationError: the URL is wrong. The text holds no part of the credentials.
    """
    defaults: dict[str, Any] = {
        "connect": False,
        "appname": "fairlane",
        "serverSelectionTimeoutMS": SELECTION_SECONDS * 1000,
        "connectTimeoutMS": SELECTION_SECONDS * 1000,
        "socketTimeoutMS": ANSWER_SECONDS * 1000,
    }
    given = {pair.partition("=")[0] for pair in url.partition("?")[2].lower().split("&")}
    if "timeoutms" in given:
        given.add("sockettimeoutms")  # the newer way to say it
    options = {name: value for name, value in defaults.items() if name.lower() not in given}
    try:
        if query := url.partition("?")[2]:
            split_options(query, warn=False)  # a client only warns of options that are unknown or wrong
        return kind(url, **options)
    except (errors.PyMongoError, ValueError, TypeError) as error:
        raise ConfigurationError(f"the MongoDB URL is wrong: {_without_secrets(str(error), url)}") from None


def database_of(client: Any, name: str | None) -> Any:
    """Return the database with the settings that the promises need, whatever those of the client are."""
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError(f"database must be the name of one: {name!r}")
    chosen = name or client.get_default_database(DATABASE).name
    try:
        return client.get_database(
            chosen,
            codec_options=CodecOptions(tz_aware=True, tzinfo=UTC),
            read_preference=pymongo.ReadPreference.PRIMARY,
            # what a read tells is always confirmed by a write that the majority has
            read_concern=ReadConcern("local"),
            write_concern=pymongo.WriteConcern("majority"),
        )
    except errors.InvalidName as error:
        raise ConfigurationError(f"{chosen!r} is no name of a database: {error}") from None


def hosts_of(client: Any) -> str:
    """Return the addresses that a client was told, without connecting it."""
    try:
        addresses = sorted(client.topology_description.server_descriptions())
    except errors.PyMongoError:
        addresses = []
    return ",".join(f"{host}:{port}" for host, port in addresses) or "its address"


def translate(error: Exception, host: str) -> FairlaneError | None:
    """Turn an error of pymongo into one of Fairlane's; None for those that it has no name for."""
    if isinstance(error, errors.DocumentTooLarge):
        return EventTooLarge(None, None)
    code = getattr(error, "code", None)
    if code in _CREDENTIALS or (code is None and _NO_CODE in str(error)):
        return AuthenticationFailed("mongo", host)
    if code in _RIGHTS:
        return AuthenticationFailed("mongo", host, "the user lacks a right that this call needs")
    if code in _FULL:
        return BackendFull("mongo", host, "the server is out of disk space")
    if code in _TOO_LARGE:
        return EventTooLarge(None, None)
    if isinstance(error, errors.ConnectionFailure | errors.WriteConcernError | errors.WaitQueueTimeoutError):
        return BackendUnavailable("mongo", host, _reason(error))
    if code in _UNSURE or isinstance(error, errors.ExecutionTimeout):
        return BackendUnavailable("mongo", host, _reason(error))
    if isinstance(error, errors.InvalidOperation):  # between two requests of one call, or by the application
        return BackendUnavailable("mongo", host, "its client was closed")
    if isinstance(error, errors.ConfigurationError):
        if error.__cause__ is not None:  # of a mongodb+srv:// URL, whose hosts are asked for when it is first used
            return BackendUnavailable("mongo", host, f"its name cannot be resolved: {_reason(error)}")
        return ConfigurationError(f"MongoDB at {host} cannot be used like this: {error}")
    return None


def _reason(error: Exception) -> str:
    """Return the first sentence; pymongo goes on with its settings and its view of the cluster."""
    text = str(error)
    for mark in (" (configured timeouts", ", Timeout: ", ", full error", ", Topology Description"):
        text = text.partition(mark)[0]
    return text[:200] or type(error).__name__


def _without_secrets(text: str, url: str) -> str:
    """Return a message of pymongo, unless it repeats a part of the credentials."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    pieces = {piece for part in before.split("@") for piece in (part, *part.split(":"), *part.split("/"))}
    secret = any(len(piece) > 1 and (piece in text or unquote(piece) in text) for piece in pieces)
    if at and (secret or "/" in before):
        return "write the characters : / ? # [ ] @ % in user and password as %3A, %2F and so on"
    return text
