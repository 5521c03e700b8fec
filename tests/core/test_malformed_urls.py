"""Different libraries read URLs with unescaped passwords differently: no part of a password may be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import pytest

import fairlane
from fairlane import ConfigurationError, FairlaneError, migrate

SECRET = "5678secr"
PASSWORDS = [
    *(f"{SECRET}{character}et" for character in "/?#@:[] ,\\%\n\0\u2100\u00e9"),
    f"{SECRET}%ffet",
    f"{SECRET}%00et",
    f"{SECRET}\ud800et",  # half of a character, as a terminal in the wrong encoding makes it
    "5678/et@x",
    "5678?et=x@x",
    "5678#et",
]
SCHEMES = ["redis", "rediss", "redis+cluster", "postgresql", "sqlite", "rqlite"]
WAYS: dict[str, Callable[[str], object]] = {
    "connect": lambda url: fairlane.connect(url, "orders", startup_timeout=0),
    "connect_async": lambda url: asyncio.run(fairlane.connect_async(url, "orders", startup_timeout=0)),
    "upgrade": lambda url: migrate.upgrade(url, queue="orders"),
    "status": lambda url: migrate.status(url, queue="orders"),
}


def _causes(error: BaseException) -> list[str]:
    """Return what a traceback would show besides the error."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return [str(cause), *_causes(cause)] if cause else []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("way", WAYS)
def test_a_password_that_was_not_escaped_is_one_typed_error_and_shown_nowhere(scheme: str, way: str) -> None:
    wrong = []
    for password in PASSWORDS:
        for tail in ("127.0.0.1:1/0", "127.0.0.1:x", "[::1/0", ""):
            try:
                WAYS[way](f"{scheme}://user:{password}@{tail}")
            except FairlaneError as error:
                shown = [str(error), *_causes(error)]
                leaked = [part for part in ("5678", "secr") if any(part in text for text in shown)]
                wrong += [f"{password!r} @{tail} shows {part}: {error!s:.200}" for part in leaked]
            except Exception as error:
                wrong.append(f"{password!r} @{tail}: {type(error).__name__}: {error!s:.200}")
    assert wrong == []


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "postgresql", "rqlite"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", ["a..invalid", ".invalid", "a" * 64 + ".invalid"], ids=["gap", "dot", "long"])
def test_an_impossible_host_is_one_typed_error(scheme: str, way: str, host: str) -> None:
    with pytest.raises(FairlaneError):
        WAYS[way](f"{scheme}://{host}:1/0")


def test_several_hosts_are_a_cluster_and_none_of_them_is_ignored() -> None:
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        fairlane.connect("redis://a:1,b:2", "orders", startup_timeout=0)


def test_a_password_that_was_escaped_is_read_as_it_is_meant() -> None:
    from fairlane.backends.redis import address as redis_address

    password = "p/?#@[]\u2100"
    address = redis_address.parse(f"redis://user:{quote(password, safe='')}@h/0")
    assert address.settings["password"] == password


@pytest.mark.parametrize("way", WAYS)
def test_half_a_character_in_a_url_of_libsql_is_one_typed_error(way: str) -> None:
    """This is a separate test: libSQL tries a refused connection again, so the table above would take minutes."""
    with pytest.raises(ConfigurationError):
        WAYS[way]("libsql+http://user:\ud800@127.0.0.1:1")
