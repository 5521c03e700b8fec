"""A part of a URL that the backend does not know is refused: nothing is ignored silently."""

from __future__ import annotations

import asyncio
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

import fairlane
from fairlane import ConfigurationError, migrate
from fairlane.backends import MANIFESTS
from fairlane.backends.sqlite.address import file_name

BASE = {
    "memory": "memory://",
    "sqlite": "sqlite:///q.db",
    "postgres": "postgresql://user:secret@127.0.0.1:1/db",
    "redis": "redis://127.0.0.1:1/0",
    "mongo": "mongodb://127.0.0.1:1/db",
    "libsql": "libsql+http://127.0.0.1:1",
    "rqlite": "rqlite://127.0.0.1:1",
    "sqs": "sqs://key:secret@eu-central-1/",
}
TOO_MUCH = [
    "memory://a",
    "memory:///a",
    "memory://user@",
    "memory://#a",
    "memory:a",
    "sqlite:///q.db#a",
    "sqlite://user@/q.db",
    "sqlite://host:1/q.db",
    "redis://127.0.0.1:1/0#a",
    "redis://127.0.0.1:1/a",
    "redis://127.0.0.1:1/0/1",
    "libsql+http://127.0.0.1:1#a",
    "rqlite://127.0.0.1:1#a",
    "rqlite://127.0.0.1:1/a",
    "sqs://key:secret@eu-central-1/a",
    "sqs://key:secret@eu-central-1/#a",
]


def connect(url: str, **options: Any) -> None:
    fairlane.connect(url, startup_timeout=0, **options).close()


def connect_async(url: str, **options: Any) -> None:
    async def opened() -> None:
        await (await fairlane.connect_async(url, startup_timeout=0, **options)).close()

    asyncio.run(opened())


def upgrade(url: str) -> None:
    migrate.upgrade(url)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("way", [connect, connect_async, upgrade])
@pytest.mark.parametrize("backend", MANIFESTS)
def test_an_option_that_a_backend_does_not_have_is_refused_in_a_url(backend: str, way: Any) -> None:
    """Guards against an ignored option: a misspelt timeout would silently mean the default."""
    with pytest.raises(ConfigurationError):
        way(f"{BASE[backend]}?busy_timout=1")


@pytest.mark.parametrize("way", [connect, connect_async])
@pytest.mark.parametrize("backend", MANIFESTS)
def test_an_option_that_a_backend_does_not_have_is_refused_as_a_keyword(backend: str, way: Any) -> None:
    with pytest.raises(ConfigurationError, match="busy_timout"):
        way(BASE[backend], busy_timout=1)


@pytest.mark.parametrize("way", [connect, connect_async, upgrade])
@pytest.mark.parametrize("url", TOO_MUCH)
def test_a_part_of_a_url_that_would_be_ignored_is_refused(url: str, way: Any) -> None:
    """Guards against an ignored part: `memory://a` and `memory://b` look like two queues, and would be one."""
    with pytest.raises(ConfigurationError):
        way(url)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/C:/data/queue.db", "C:/data/queue.db"),
        ("//C:/data/queue.db", "C:/data/queue.db"),
        ("/C:%5Cdata%5Cqueue.db", "C:\\data\\queue.db"),
        ("/c%3A/a%20b.db", "c:/a b.db"),
        ("/queue.db", "queue.db"),
        ("//server/share/queue.db", "/server/share/queue.db"),
    ],
)
def test_the_path_of_an_sqlite_url_may_begin_with_a_drive_on_windows(path: Any, name: str) -> None:
    assert file_name(path, drive_letters=True) == name
    if name[1:2] == ":":
        assert PureWindowsPath(name).is_absolute()
        assert file_name("/C:/data/queue.db", drive_letters=False) == "C:/data/queue.db", "a folder of that name"
        assert file_name("//C:/data/queue.db", drive_letters=False) == "/C:/data/queue.db"
