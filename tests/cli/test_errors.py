"""Every error on the command line is one line on stderr with exit code 2, and never shows a password."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import fairlane as package
from fairlane.cli.runner import run
from tests.commands import environment, fairlane, fairlane_command
from tests.commands import run as run_command

REFUSED = ("postgresql://u:s%25e%40c@127.0.0.1:1/x", "redis://u:s%25e%40c@127.0.0.1:1/0")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("stats --nonsense", "No such option"),
        ("peek", "GROUP"),
        ("stats --url nonsense", "starts with its scheme"),
        ("stats --url foo://x", "no backend answers to foo://"),
        ("stats --url sqlite:///no/such/folder.db", "does not exist"),
        ("stats --url sqlite:///other.db", "run `fairlane migrate --queue fairlane`"),
        ("stats --queue Nonsense", "queue must match"),
        ("stats --queue other", "run `fairlane migrate --queue other`"),
        ("groups --limit 0", "limit must be an int from 1 to 10000"),
        ("groups --limit x", "--limit"),
        ("publish", "name a group and an event"),
        ("publish g {'a':1}", "the event is not JSON"),
        ("publish g text", "a text needs its quotes"),
        ("publish g NaN", "NaN is not JSON"),
        ("publish g 1 --priority 7", "priority must be an int from 0 to 4"),
        ("publish --file nowhere.jsonl", "nowhere.jsonl: No such file or directory"),
        ("publish g --file nowhere.jsonl", "leave out the others"),
        ("claim --visibility 0", "visibility must be more than 0"),
        ("claim --visibility nan", "visibility"),
        ("status --wait nan", "range 0<=x<=3600"),
        ("status --wait inf", "range 0<=x<=3600"),
        ("claim --min-priority 5", "min_priority must be an int from 0 to 4"),
        ("ack", "name the lease"),
        ("ack g t 1", "no longer holds"),
        ("ack g t x", "SEQ"),
        ("ack --lease nowhere", "nowhere: No such file or directory"),
        ("ack g t 1 --lease x", "name the lease only once"),
        ("nack g t 1 --delay -1", "delay must be 0 to"),
        ("extend g t 1", "no longer holds"),
        ("migrate 9999", "9999"),
        ("migrate ", "name a revision"),
        ("migrate --sql ", "name a revision"),
        ("claim --worker ", "worker_id must be 1 to 512 bytes"),
        ("migrate --head-start last", "head_start must be 0 to 86400 seconds, or always: 'last'"),
        ("migrate --head-start -1", "head_start must be 0 to 86400 seconds, or always: '-1'"),
        ("migrate --head-start nan", "head_start must be 0 to 86400 seconds, or always: 'nan'"),
        ("migrate --head-start 86400.1", "head_start must be 0 to 86400 seconds, or always: '86400.1'"),
        ("migrate --app-role app", "app_role is an option of postgres"),
        ("queue", "Missing command"),
        ("queue nonsense", "No such command 'nonsense'"),
        ("queue show --queue other", "run `fairlane migrate --queue other`"),
        ("queue show --url memory://", "lives in one process"),
        ("queue set", "name a setting and its new value: --head-start"),
        ("queue set --nonsense 1", "No such option: --nonsense"),
        ("queue set --head-start last", "head_start must be 0 to 86400 seconds, or always: 'last'"),
        ("queue set --head-start 1 --queue other", "run `fairlane migrate --queue other`"),
        ("queue set --head-start 1 --owner-role me", "owner_role is an option of postgres"),
        ("drop", "holds 0 messages in 0 groups (0 leased), which would be lost: add --yes"),
        ("drop --queue other", "there is no queue 'other'"),
        ("drop --queue other --yes", "there is no queue 'other'"),
        ("drop --queue Nonsense --yes", "queue must match"),
        ("drop --yes --url memory://", "lives in one process"),
        ("demo --workers 1", "workers must be at least 2"),
        ("demo --queue fairlane --url sqlite:///queue.db", "name a new queue"),
    ],
)
def test_bad_input_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    assert run(line.split(" ")) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("fairlane: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err


def test_bad_files_of_events_publish_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = '{"group": "g", "event": 1}\n'
    for bad, says in {
        "{": "is not JSON",
        "[]": "a line is an object",
        '{"group": "g"}': "a line is an object",
        '{"group": "g", "event": 1, "prio": 1}': 'unknown key "prio"',
        '{"group": "", "event": 1}': "group must be 1 to 512 bytes",
        '{"group": "g", "event": 1, "priority": true}': "priority must be an int",
        '{"group": "g", "event": NaN}': "NaN is not JSON",
        '{"group": "g", "event": "\\ud800"}': "surrogate",
        "[" * 100_000: "nested",
    }.items():
        (here / "events.jsonl").write_text(good + bad)
        assert run(["publish", "--file", "events.jsonl"]) == 2
        error = capsys.readouterr().err
        assert "events.jsonl line 2: " in error
        assert says in error
        assert error.count("\n") == 1
    (here / "events.jsonl").write_bytes(good.encode() + b"\xff\xfe")
    assert run(["publish", "--file", "events.jsonl"]) == 2
    with package.connect() as queue:
        assert queue.inspect.queue().messages == 0


def test_a_pipe_is_read_to_its_end_before_anything_is_published(here: Path) -> None:
    """Guards against input with a cut last line whose earlier lines are published, although the help promises
    otherwise."""
    done = fairlane(
        "publish", "--file", "-", "--url", "sqlite:///queue.db", stdin='{"group":"g","event":1}\n{"gro', cwd=here
    )
    assert done.code == 2
    assert done.err.startswith("fairlane: stdin line 2: ")
    with package.connect("sqlite:///queue.db") as queue:
        assert queue.inspect.queue().messages == 0
    good = '{"group":"g","event":1}\n{"group":"g","event":2}'
    assert fairlane("publish", "--file", "-", "--url", "sqlite:///queue.db", stdin=good, cwd=here).code == 0
    with package.connect("sqlite:///queue.db") as queue:
        assert queue.inspect.queue().messages == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"group_id": "g", "token": 1, "seq": 1}', "x", "[" * 100_000])
def test_a_file_that_is_not_a_lease_is_refused(here: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (here / "lease").write_text(text)
    assert run(["ack", "--lease", "lease"]) == 2
    assert "lease is not the output of claim" in capsys.readouterr().err


def test_an_event_that_cannot_be_decoded_still_shows_its_lease(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlite3

    with package.connect() as queue:
        queue.publish("g", 1)
    with sqlite3.connect("queue.db") as connection:
        connection.execute("update fairlane_messages set event = '{'")
    connection.close()
    assert run(["claim"]) == 2
    shown = capsys.readouterr()
    assert "cannot be decoded" in shown.err
    (here / "lease").write_text(shown.out)
    assert run(["ack", "--lease", "lease"]) == 0


@pytest.mark.parametrize("url", REFUSED)
@pytest.mark.parametrize("command", ["status", "migrate", "stats", "demo", "queue show", "drop"])
def test_a_refused_connection_is_one_line_within_seconds_and_without_the_password(url: str, command: str) -> None:
    began = time.monotonic()
    error = fairlane(*command.split(), "--url", url).failed_in_one_line()
    assert time.monotonic() - began < 30
    assert "127.0.0.1" in error
    for secret in ("s%25e%40c", "s%e@c", "s%e"):
        assert secret not in error


@pytest.mark.parametrize(
    "url", ["postgresql://u:ge/heim@127.0.0.1:1/x", "redis://u:ge@heim#x@127.0.0.1:1", "ge heim://"]
)
def test_a_url_that_is_wrong_is_one_line_without_the_password(url: str) -> None:
    error = fairlane("stats", "--url", url).failed_in_one_line()
    assert "heim" not in error


@pytest.mark.parametrize("backend", ["postgres", "redis"])
def test_a_missing_extra_says_what_to_install(backend: str) -> None:
    driver = {"postgres": "psycopg", "redis": "redis"}[backend]
    url = REFUSED[["postgres", "redis"].index(backend)]
    program = f"import sys; sys.modules[{driver!r}] = None; from fairlane.cli import main; main()"
    for command in ("stats", "migrate", "status"):
        done = run_command([sys.executable, "-c", program, command, "--url", url])
        assert f"pip install 'fairlane[{backend}]'" in done.failed_in_one_line()


def test_an_unexpected_error_is_one_line_too(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("line one\nline two \x1b[31m of sqlite:///queue.db?token=geheimnis")

    monkeypatch.setattr("fairlane.cli.look.opened", explode)
    monkeypatch.setenv("FAIRLANE_URL", "sqlite:///queue.db?token=geheimnis")
    assert run(["stats"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairlane: unexpected RuntimeError: line one line two \\u001b[31m of")
    assert "geheimnis" not in error
    assert error.count("\n") == 1
    monkeypatch.setenv("FAIRLANE_TRACEBACK", "1")
    assert run(["stats"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(here: Path, number: signal.Signals, code: int) -> None:
    # -W error: no warning may appear at the end
    (here / "events.jsonl").write_text('{"group": "g", "event": 1}\n' * 50_000)
    process = subprocess.Popen(
        fairlane_command("publish", "--file", "events.jsonl", "--url", "sqlite:///queue.db"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with package.connect("sqlite:///queue.db") as queue:
        wait_until(lambda: queue.inspect.queue().messages >= 1)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert out == b""
    assert b"Traceback" not in err
    assert err.count(b"\n") <= 1  # how many were published


def test_a_reader_that_closes_its_end_is_no_error(here: Path) -> None:
    with package.connect() as queue:
        for number in range(3000):
            queue.publish(f"a group with a rather long name {number}", number)
    command = fairlane_command("groups", "--json", "--limit", "10000", "--url", "sqlite:///queue.db")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(20) == 141


def test_help_and_import_load_no_driver_and_no_alembic() -> None:
    heavy = "alembic", "sqlalchemy", "psycopg", "psycopg_pool", "redis", "pymongo", "boto3", "requests", "httpx"
    program = (
        "import sys; import fairlane; from fairlane.cli.runner import run; code = run(['--help'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], code, file=sys.stderr)"
    )
    assert run_command([sys.executable, "-c", program]).err == "[] 0\n"


def wait_until(is_so: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
