"""The input of commands is JSON that comes back equal, in UTF-8. The output must have somewhere to go."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import fairlane as package
from fairlane.cli import publishing
from fairlane.cli.input import parse_json
from fairlane.cli.runner import run
from tests.commands import environment, fairlane_command

URL = "sqlite:///queue.db"


UNEQUAL = {
    '{"a": 1, "a": 2}': "twice",
    '[{"b": {"a": 1, "c": 2, "a": 1}}]': 'key "a" twice',
    "1.00000000000000000001": "to 1.0",
    "12345678901234567890.5": "a float would round",
    "1e400": "to inf",
    "-1e400": "to -inf",
    "1e-400": "to 0.0",
    "1e99999999999999999999": "to inf",
    "1e-99999999999999999999": "to 0.0",
    "9" * 4301: "an integer has more than 4,300 digits",
}


@pytest.mark.parametrize("event", UNEQUAL)
def test_an_event_that_would_not_come_back_equal_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], event: str
) -> None:
    (here / "events.jsonl").write_text(f'{{"group": "g", "event": {event}}}')
    for arguments in (["publish", "g", "--", event], ["publish", "--file", "events.jsonl"]):
        assert run(arguments) == 2
        assert UNEQUAL[event] in capsys.readouterr().err
    with package.connect() as queue:
        assert queue.inspect.queue().messages == 0


def test_a_key_that_comes_twice_among_many_is_found_at_once() -> None:
    """Guards against counting each key separately: an object of 100,000 keys would take minutes to be refused."""
    keys = ",".join(f'"k{number}": 1' for number in range(100_000))
    began = time.process_time()
    with pytest.raises(ValueError, match='key "k99999" twice'):
        parse_json(f'{{{keys}, "k99999": 2}}', "it")
    assert time.process_time() - began < 20


def test_a_byte_order_mark_on_an_empty_line_is_an_empty_line(here: Path) -> None:
    (here / "events.jsonl").write_bytes(b'\xef\xbb\xbf\r\n{"group": "g", "event": 1}\r\n')
    assert run(["publish", "--file", "events.jsonl"]) == 0


def test_lines_added_while_a_file_is_published_are_ignored(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such lines are not checked. Guards against a wrong one that stops the command in the middle of its work."""
    path = here / "events.jsonl"
    path.write_text('{"group": "g", "event": 1}\n')
    real = publishing._publish_lines

    def append_first(*arguments: Any) -> Any:
        with path.open("a") as stream:
            stream.write('{"group": "g", "event": 2}\n{')
        return real(*arguments)

    monkeypatch.setattr(publishing, "_publish_lines", append_first)
    assert run(["publish", "--file", "events.jsonl"]) == 0
    with package.connect() as queue:
        assert queue.inspect.queue().messages == 1


def test_an_event_that_begins_with_a_dash_needs_a_double_dash(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["publish", "g", "-1"]) == 2
    assert "write -- before" in capsys.readouterr().err
    assert run(["publish", "--", "g", "-1"]) == 0


def test_numbers_that_a_float_holds_are_taken_as_they_are_written(here: Path) -> None:
    for event in (
        "0.1",
        "1.10",
        "1e2",
        "-0.0",
        "1E+308",
        "5e-324",
        "123456789012345678901234567890",
        "0.30000000000000004",
    ):
        assert run(["publish", "--", event, event]) == 0
        with package.connect() as queue:
            assert queue.inspect.messages(event)[0].event == json.loads(event)


LOCALES = {
    "UTF-8": {"LC_ALL": "C.UTF-8"},
    "ASCII": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_input_is_utf_8_whatever_the_locale(here: Path, locale: str) -> None:
    def fairlane_here(*arguments: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command: list[str | bytes] = [*fairlane_command(), *arguments]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env=environment({"FAIRLANE_URL": URL, **LOCALES[locale]}),
            timeout=60,
        )

    name = "Zoë 🦊"
    assert fairlane_here(b"publish", name.encode(), json.dumps(name, ensure_ascii=False).encode()).returncode == 0
    assert fairlane_here(b"publish", name.encode(), b"-", stdin=f'"{name}"'.encode()).returncode == 0
    line = json.dumps({"group": name, "event": name}, ensure_ascii=False).encode()
    assert fairlane_here(b"publish", b"--file", b"-", stdin=line).returncode == 0
    with package.connect() as queue:
        assert [message.event for message in queue.inspect.messages(name)] == [name] * 3
    lease = fairlane_here(b"claim", b"--worker", name.encode()).stdout
    assert fairlane_here(b"ack", b"--lease", b"-", stdin=lease).returncode == 0
    for arguments, stdin in (
        ((b"publish", b"g", b'"\xff"'), b""),
        ((b"publish", b"\xff", b"1"), b""),
        ((b"publish", b"g", b"-"), b'"\xff"'),
        ((b"publish", b"--file", b"-"), b'{"group": "g", "event": "\xff"}'),
        ((b"claim", b"--worker", b"\xff"), b""),
    ):
        done = fairlane_here(*arguments, stdin=stdin)
        assert done.returncode == 2, arguments
        assert b"not UTF-8" in done.stderr, arguments
    with package.connect() as queue:
        assert queue.inspect.queue().messages == 2


@pytest.mark.parametrize("command", ["publish g 1", "claim", "stats"])
def test_with_standard_output_closed_nothing_is_done(here: Path, command: str) -> None:
    """Guards against a `publish … >&-` that publishes and then reports a failure, and against a claim whose lease
    nobody gets."""
    with package.connect() as queue:
        queue.publish("g", 0)
        done = subprocess.run(
            ["sh", "-c", f'"$@" {command} >&-', "sh", *fairlane_command()],
            stderr=subprocess.PIPE,
            env=environment({"FAIRLANE_URL": URL}),
            timeout=60,
        )
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert done.stderr.startswith(b"fairlane: standard output is closed, so nothing was done")
        assert queue.inspect.queue().messages == 1
        assert queue.claim("w", 30) is not None


def test_what_libraries_print_never_goes_into_the_database(here: Path) -> None:
    """If standard error is closed, the next file that a process opens would get descriptor 2."""
    command = ["sh", "-c", '"$@" 2>&- <&-', "sh", *fairlane_command("publish", "g", "1")]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment({"FAIRLANE_URL": URL}), timeout=60)
    assert (done.returncode, done.stdout) == (0, b"1\n")
    failed = ["sh", "-c", '"$@" 2>&-', "sh", *fairlane_command("publish", "g", "{")]
    done = subprocess.run(failed, stdout=subprocess.PIPE, env=environment({"FAIRLANE_URL": URL}), timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")
