"""Every command of `fairlane`, run as people run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import fairlane as package
from fairlane import GroupStatus, Lease, MessageStatus, QueueStatus, Transport
from fairlane.backends import MANIFESTS
from fairlane.contract import CLIENT_REVISION
from tests.commands import Done, fairlane


def names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An SQLite file with an empty queue."""
    package.migrate.upgrade(f"sqlite:///{tmp_path}/queue.db")
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def queue(url: str) -> Iterator[Transport]:
    with package.connect(url) as transport:
        yield transport


def test_help_names_every_command() -> None:
    shown = fairlane().ok().out
    assert shown == fairlane("--help").ok().out
    listed = shown.partition("Commands:")[2].split("\n")
    commands = {line.split()[0] for line in listed if line.strip()}
    assert commands == {
        *("migrate", "status", "stats", "groups", "peek", "backends", "demo"),
        *("publish", "claim", "ack", "nack", "extend", "release", "purge", "pause", "resume", "queue", "drop"),
    }


def test_version() -> None:
    assert fairlane("--version").ok().out == f"fairlane {package.__version__}\n"


def test_migrate_and_status(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    before = fairlane("status", "--url", url)
    assert before.code == 1
    assert "run `fairlane migrate --queue fairlane`" in before.out
    assert not (tmp_path / "new.db").exists()
    assert f"now at revision {CLIENT_REVISION}" in fairlane("migrate", "--url", url).ok().out
    assert "there was nothing to do" in fairlane("migrate", "--url", url, "head").ok().out
    assert fairlane("status", "--url", url).ok().out.startswith("Ready: ")
    answer = fairlane("status", "--url", url, "--json", "-q", "other")
    assert answer.code == 1
    assert answer.json == {
        "queue": "other",
        "found": None,
        "serves": None,
        "needed": CLIENT_REVISION,
        "ready": False,
        "fault": None,
    }


def test_migrate_base_removes_the_queue_but_no_messages_by_accident(url: str, queue: Transport) -> None:
    queue.publish("g", 1)
    assert "1 message," in fairlane("migrate", "base", "--url", url).failed_in_one_line()
    assert queue.inspect.queue().messages == 1
    assert "removed" in fairlane("migrate", "base", "--yes", "--url", url).ok().out
    assert fairlane("status", "--url", url).code == 1
    assert "there was nothing to do" in fairlane("migrate", "base", "--url", url).ok().out


def test_migrate_sql_prints_the_script_and_nothing_else(tmp_path: Path) -> None:
    for backend in ("sqlite:///none.db", "postgresql://u:geheim@127.0.0.1:1/x", "redis://127.0.0.1:1"):
        done = fairlane("migrate", "--sql", "--url", backend, "--queue", "orders", cwd=tmp_path).ok()
        assert done.err == ""
        assert "orders" in done.out
        assert "geheim" not in done.out
        assert "INFO  [" not in done.out
    assert list(tmp_path.iterdir()) == []


def test_stats_groups_and_peek(url: str, queue: Transport) -> None:
    queue.publish("a", {"n": 1}, 2)
    queue.publish("a", [None, "zwei"], dedup_id="once")
    queue.publish("b", 3)
    queue.claim("worker-7", 60)
    stats = fairlane("stats", "--url", url, "--json").ok().json
    assert list(stats) == names(QueueStatus)
    assert (stats["groups"], stats["in_flight"], stats["messages"]) == (2, 1, 3)
    groups = fairlane("groups", "--url", url, "--json").ok().json_lines
    assert [list(row) for row in groups] == [names(GroupStatus)] * 2
    assert [(row["group_id"], row["state"], row["worker_id"]) for row in groups] == [
        ("b", "ready", None),
        ("a", "in_flight", "worker-7"),
    ]
    messages = fairlane("peek", "a", "--url", url, "--json").ok().json_lines
    assert [list(row) for row in messages] == [names(MessageStatus)] * 2
    assert [row["event"] for row in messages] == [{"n": 1}, [None, "zwei"]]
    assert messages[0]["published_at"].endswith("+00:00")
    for command in (("stats",), ("groups",), ("peek", "a")):
        text = fairlane(*command, "--url", url).ok().out
        assert "in_flight" in text
        assert "\x1b" not in text
    assert '{"n": 1}' in text
    assert "no messages" in fairlane("peek", "nobody", "--url", url).ok().out


def test_release_ends_a_lease_and_says_when_there_is_none(url: str, queue: Transport) -> None:
    queue.publish("g", 1)
    gone = queue.claim("gone", 600)
    assert gone is not None
    assert fairlane("release", "g", "--url", url).ok() == Done(0, "", "")
    assert fairlane("release", "g", "--url", url) == Done(1, "", "The group g is not leased.\n")
    assert fairlane("claim", "--url", url).ok().json["attempts"] == 2


def test_purge_deletes_only_when_it_is_told_twice(url: str, queue: Transport) -> None:
    for number in range(3):
        queue.publish("a b", number)
    assert "--yes" in fairlane("purge", "a b", "--url", url).failed_in_one_line()
    assert queue.inspect.queue().messages == 3
    queue.claim("w", 600)
    assert fairlane("purge", "a b", "--yes", "--url", url).ok().out == "2 messages deleted.\n"
    assert fairlane("release", "a b", "--url", url).ok()
    assert fairlane("purge", "a b", "--yes", "--url", url).ok().out == "1 message deleted.\n"
    assert fairlane("purge", "a b", "--yes", "--url", url).ok().out == "0 messages deleted.\n"


@pytest.mark.parametrize(("which", "name"), [(["a b"], "The group a b"), ([], "The queue fairlane")])
def test_pause_and_resume_a_group_or_the_queue(url: str, queue: Transport, which: list[str], name: str) -> None:
    queue.publish("a b", 1)
    assert fairlane("resume", *which, "--url", url) == Done(1, "", f"{name} is not paused.\n")
    assert fairlane("pause", *which, "--url", url).ok() == Done(0, "", "")
    assert fairlane("pause", *which, "--url", url) == Done(1, "", f"{name} is paused already.\n")
    assert fairlane("claim", "--url", url).code == 1
    stats, shown = fairlane("stats", "--url", url).ok().out, fairlane("groups", "--url", url).ok().out
    assert ("(paused)" in stats) == (not which)
    assert ("paused" in shown) == bool(which)
    assert fairlane("resume", *which, "--url", url).ok() == Done(0, "", "")
    assert fairlane("claim", "--url", url).ok().json["event"] == 1


def test_groups_says_when_there_are_more(url: str, queue: Transport) -> None:
    for number in range(3):
        queue.publish(f"g{number}", None)
    done = fairlane("groups", "--url", url, "--limit", 2).ok()
    assert "g1" in done.out
    assert "g2" not in done.out
    assert "more groups" in done.err


def test_publish_claim_extend_nack_ack_by_hand(url: str, tmp_path: Path) -> None:
    env = {"FAIRLANE_URL": url}
    assert fairlane("publish", "g", '{"a": [1, null]}', "-p", 3, env=env).ok().out == "1\n"
    assert fairlane("publish", "g", "-", env=env, stdin='"zwei"').ok().out == "2\n"
    assert fairlane("publish", "g", "--dedup-id", "x", "--", "-3", env=env).ok().out == "3\n"
    assert fairlane("publish", "g", "0", "--dedup-id", "x", env=env).ok().out == "3\n"
    assert fairlane("claim", "--min-priority", 4, env=env) == Done(1, "", "Nothing is deliverable.\n")

    claimed = fairlane("claim", "--worker", "me", "--visibility", 60, env=env).ok()
    lease = claimed.json
    assert list(lease) == names(Lease)
    assert (lease["group_id"], lease["seq"], lease["attempts"], lease["event"]) == ("g", 1, 1, {"a": [1, None]})
    extended = fairlane("extend", "--lease", "-", "--visibility", 600, env=env, stdin=claimed.out).ok().json
    assert extended["expires_at"] > lease["expires_at"]
    assert extended["event"] == lease["event"]
    assert fairlane("nack", "g", lease["token"], 1, env=env).ok().out == ""
    assert "no longer holds" in fairlane("ack", "g", lease["token"], 1, env=env).failed_in_one_line()

    (tmp_path / "lease").write_text(fairlane("claim", env=env).ok().out)
    assert fairlane("ack", "--lease", tmp_path / "lease", env=env).ok().out == ""
    again = fairlane("claim", env=env).ok()
    assert again.json["event"] == "zwei"
    assert fairlane("nack", "--lease", "-", "--delay", 3600, env=env, stdin=again.out).ok().out == ""
    assert fairlane("claim", env=env).code == 1


def test_publish_a_file(url: str, tmp_path: Path, queue: Transport) -> None:
    lines = [{"group": f"g{n % 3}", "event": n, "priority": n % 5, "dedup_id": f"d{n}"} for n in range(30)]
    text = "\ufeff" + "\n\n".join(map(json.dumps, lines))
    (tmp_path / "events.jsonl").write_text(text, encoding="utf-8")
    done = fairlane("publish", "--file", tmp_path / "events.jsonl", "--url", url).ok()
    assert done.out.startswith("Published 30 events into 3 groups")
    assert done.err == ""
    assert [row.event for row in queue.inspect.messages("g1")] == list(range(1, 30, 3))
    again = fairlane("publish", "--file", "-", "--url", url, stdin=json.dumps(lines[0])).ok()
    assert again.out.startswith("Published 1 events")
    assert queue.inspect.queue().messages == 30


def test_backends_lists_all_of_them() -> None:
    rows = fairlane("backends", "--json").ok().json_lines
    assert [row["backend"] for row in rows] == list(MANIFESTS)
    assert all(row["schemes"] and row["server"] for row in rows)
    text = fairlane("backends").ok().out
    assert all(name in text for name in MANIFESTS)


def test_the_environment_chooses_the_backend(url: str) -> None:
    chosen = {"STM_TRANSPORT_BACKEND": "sqlite", "FAIRLANE_SQLITE_URL": url}
    assert fairlane("status", env=chosen).code == 0
    assert fairlane("status", env={"STM_TRANSPORT_BACKEND": "memory"}).code == 0
    contradiction = fairlane("status", env={"STM_TRANSPORT_BACKEND": "redis", "FAIRLANE_URL": url})
    assert "unset one of them" in contradiction.failed_in_one_line()
    assert (
        "FAIRLANE_SQLITE_URL must be set"
        in fairlane("status", env={"STM_TRANSPORT_BACKEND": "sqlite"}).failed_in_one_line()
    )
    assert "pass a URL, or set FAIRLANE_URL" in fairlane("stats").failed_in_one_line()
