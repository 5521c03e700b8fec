"""Make clients of MongoDB from URLs.

A URL is one of pymongo. Its path names the database, by default `fairlane`. Its timeouts count. Its write concern and
read preference are ignored, since the promises need `majority` and the primary.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any, TypeAlias, TypeVar, overload
from urllib.parse import unquote

import pymongo
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, MongoClient, errors
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options

from fairlane.backends.mongo.options import OPTIONS
from fairlane.backends.mongo.wire import Document
from fairlane.backends.shared.options import without_options
from fairlane.errors import ConfigurationError

Client: TypeAlias = MongoClient[Document]
AsyncClient: TypeAlias = AsyncMongoClient[Document]
ClientT = TypeVar("ClientT", bound=Client | AsyncClient)
AnyDatabase: TypeAlias = Database[Document] | AsyncDatabase[Document]

DATABASE = "fairlane"
SELECTION_SECONDS = 5
"""Seconds for which a request searches a primary, for example during an election."""


def make(cls: type[ClientT], url: str) -> ClientT:
    """Return a client of one of pymongo's classes. It connects when it is first used.

    Raises:
        ConfigurationError: the URL is wrong. The message contains no part of the credentials.
    """
    defaults: dict[str, Any] = {
        "connect": False,
        "appname": "fairlane",
        "serverSelectionTimeoutMS": SELECTION_SECONDS * 1000,
        "connectTimeoutMS": SELECTION_SECONDS * 1000,
    }
    given = {pair.partition("=")[0] for pair in url.partition("?")[2].lower().split("&")}
    options = {name: value for name, value in defaults.items() if name.lower() not in given}
    url = without_options(url, OPTIONS)
    try:
        if query := url.partition("?")[2]:
            split_options(query, warn=False)  # raises for unknown and wrong options; a client only warns
        return cls(url, **options)
    except (errors.PyMongoError, ValueError, TypeError) as error:
        raise ConfigurationError(f"the MongoDB URL is wrong: {_without_secrets(str(error), url)}") from None


@overload
def database_of(client: Client, name: str | None) -> Database[Document]: ...
@overload
def database_of(client: AsyncClient, name: str | None) -> AsyncDatabase[Document]: ...
def database_of(client: Client | AsyncClient, name: str | None) -> AnyDatabase:
    """Return the database with the settings that the promises need. They replace the settings of the client."""
    chosen = client.get_default_database(DATABASE).name if name is None else name
    try:
        return client.get_database(
            chosen,
            codec_options=CodecOptions(tz_aware=True, tzinfo=UTC),
            read_preference=pymongo.ReadPreference.PRIMARY,
            # `local` is enough, since a write with `majority` follows each read
            read_concern=ReadConcern("local"),
            write_concern=pymongo.WriteConcern("majority"),
        )
    except errors.InvalidName as error:
        raise ConfigurationError(f"{chosen!r} is not a valid name of a database: {error}") from None


def shortest_timeout(client: Client | AsyncClient, timeout: float) -> float:
    """Return the seconds that a call may take: the option, or a shorter timeout of the client."""
    own = (client.options.timeout, client.options.pool_options.socket_timeout)
    return min([timeout, *(each for each in own if each)])


def hosts_of(client: Client | AsyncClient) -> str:
    """Return the addresses of a client's settings, without connecting."""
    try:
        addresses = sorted(client.topology_description.server_descriptions())
    except errors.PyMongoError:
        addresses = []
    return ",".join(f"{host}:{port}" for host, port in addresses) or "its address"


def _without_secrets(text: str, url: str) -> str:
    """Return a message of pymongo, or another text if it contains a part of the credentials."""
    before, at, _ = url.partition("://")[2].rpartition("@")
    pieces = {piece for part in before.split("@") for piece in (part, *part.split(":"), *part.split("/"))}
    secret = any(len(piece) > 1 and (piece in text or unquote(piece) in text) for piece in pieces)
    if at and (secret or "/" in before):
        return "write the characters : / ? # [ ] @ % in user and password as %3A, %2F and so on"
    return text
