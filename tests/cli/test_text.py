"""Printed text contains nothing that a terminal would obey: it is only shown."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import fairlane as package
from fairlane.cli import text
from tests.commands import environment, fairlane, fairlane_command, run

NASTY = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "back\b\b\b\bspace",
    "line\r\nbreak",
    "tab\there",
    "\u202egnp.exe",
    "zero\u200bwidth",
    "no\u00a0break",
    "\u2028",
    "\x7f",
    " leading",
    "trailing ",
    '"quoted"',
    "-",  # what tables show for a missing value
]
PLAIN = ["order-17", "[red]bold[/red]", ":smile:", "é", "e\u0301", "emoji 🦊", "{}:*'", "back\\slash", 'in"side']


@pytest.mark.parametrize("id_", NASTY)
def test_an_odd_id_is_shown_as_a_json_string(id_: str) -> None:
    shown = text.quoted_if_odd(id_)
    assert json.loads(shown) == id_
    assert all(char.isprintable() for char in shown)


@pytest.mark.parametrize("id_", PLAIN)
def test_an_ordinary_id_is_shown_as_it_is(id_: str) -> None:
    assert text.quoted_if_odd(id_) == id_


def test_events_are_shown_as_harmless_json_and_cut() -> None:
    event = {"a\x1b": NASTY, "ü": ["🦊", 1.5, None]}
    shown = text.event_text(event)
    assert json.loads(shown) == event
    assert shown.isprintable()
    assert "ü" in shown
    assert text.event_text("x" * 300, 50) == '"' + "x" * 48 + "…"


def test_json_for_scripts_is_ascii() -> None:
    line = text.json_line({"ids": NASTY + PLAIN})
    assert json.loads(line)["ids"] == NASTY + PLAIN
    assert line.isascii()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.0, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (86399, "23 h 59 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_ages(seconds: float | None, shown: str) -> None:
    assert text.age(seconds) == shown


def test_secrets_are_hidden_raw_and_decoded() -> None:
    urls = ["postgresql://u:s%25e%40c@h/x", "libsql://h?authToken=geheim", "not a url", "redis://:[@]@h", "//["]
    shown = text.without_secrets("s%25e%40c, s%e@c and geheim at h", urls)
    assert shown == "***, *** and *** at h"
    assert text.without_secrets("geheim", ["postgresql://a,[::1]:5/x?password=geheim"]) == "***"


def in_terminal(*arguments: object) -> str:
    """Return what a terminal would receive."""
    keeper, terminal = pty.openpty()
    process = subprocess.Popen(
        fairlane_command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environment({"TERM": "xterm", "COLUMNS": "200"}),
    )
    os.close(terminal)
    received = b""
    while True:
        try:
            part = os.read(keeper, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        received += part
    process.wait()
    os.close(keeper)
    return received.decode()


def test_in_a_terminal_only_our_own_styles_are_escapes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with package.connect(url, migrate=True) as queue:
        for id_ in NASTY + PLAIN:
            queue.publish(id_, {"text": id_})
            queue.claim(id_, 60)
        queue.publish("group", NASTY, dedup_id="\x1b[5m")
    styles = re.compile(r"\x1b\[[0-9;]*m")
    for command in (("groups",), ("peek", "group"), ("stats",)):
        shown = in_terminal(*command, "--url", url)
        assert styles.search(shown), "a terminal gets colours"
        bare = styles.sub("", shown).replace("\r\n", "\n")
        assert all(char.isprintable() or char == "\n" for char in bare)
        piped = fairlane(*command, "--url", url).ok().out
        assert all(char.isprintable() or char == "\n" for char in piped)
    assert all(id_ in fairlane("groups", "--url", url).out for id_ in PLAIN)
    error = fairlane("ack", "\x1b[31m[red]", "t", "1", "--url", url).failed_in_one_line()
    assert "[red]" in error
    assert "\x1b" not in error


def test_output_works_in_any_locale(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    with package.connect(url, migrate=True) as queue:
        queue.publish("füchse 🦊", "🦊")
    for encoding in ("ascii", "latin-1"):
        done = run(fairlane_command("groups", "--url", url), env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}).ok()
        assert "\\U0001f98a" in done.out
