"""A command says what it did even if nobody can read its output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fairlane as package
from fairlane.cli.runner import run
from fairlane.contract import CLIENT_REVISION
from tests.commands import environment, fairlane_command
from tests.commands import run as run_command

URL = "sqlite:///queue.db"


def into(output: str, *arguments: str) -> tuple[int, str]:
    """Run a command with this redirection in a shell. Return its exit code and its standard error."""
    command = ["bash", "-c", f'"$@" {output}; exit ${{PIPESTATUS[0]}}', "bash", *fairlane_command(*arguments)]
    done = subprocess.run(command, capture_output=True, env=environment({"FAIRLANE_URL": URL}), timeout=60)
    return done.returncode, done.stderr.decode()


NOWHERE = {"> /dev/full": (2, "No space left on device"), "| true": (141, "Broken pipe")}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("output", NOWHERE)
def test_an_output_that_cannot_be_written_is_an_error_that_says_what_was_done(here: Path, output: str) -> None:
    """Guards against a stored publish that only says "No space left on device", and against a claimed message that is
    not given back."""
    code, reason = NOWHERE[output]
    with package.connect() as queue:
        said = f"fairlane: the output could not be written: {reason}; "
        assert into(output, "publish", "g", "1") == (code, f"{said}the event was published as message 1\n")
        assert into(output, "claim") == (code, f"{said}the message that was claimed was given back\n")
        lease = queue.claim("w", 30)
        assert lease is not None
        held = ("g", lease.token, str(lease.seq))
        failed, error = into(output, "extend", *held, "--visibility", "600")
        assert failed == code
        assert error.startswith(f"{said}the lease was extended until ")
        assert queue.inspect.groups()[0].ready_in_seconds > 500
        Path("events.jsonl").write_text('{"group": "h", "event": 1}')
        assert into(output, "publish", "--file", "events.jsonl") == (code, f"{said}all 1 events were published\n")
        done = f"The queue other is now at revision {CLIENT_REVISION}."
        assert into(output, "migrate", "--queue", "other") == (code, f"{said}{done}\n")


@pytest.mark.parametrize("command", ["--help", "--version", "migrate --help", "groups", "stats", "backends", "status"])
def test_a_pipe_without_a_reader_gives_the_same_exit_code_everywhere(here: Path, command: str) -> None:
    """Guards against tables and help that end with exit code 1, which means that the answer is no."""
    assert into("| true", *command.split()) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_look_that_could_not_be_written_names_the_output(here: Path) -> None:
    for command in ("--help", "groups", "groups --json", "status"):
        code, error = into("> /dev/full", *command.split())
        assert (code, error) == (
            (2, "fairlane: the output could not be written: No space left on device\n")
            if command != "groups --json"
            else (0, "")  # no line, since there is no group
        )


@pytest.mark.parametrize("command", ["publish g 1", "claim", "stats", "groups", "peek g", "ack g t 1"])
def test_a_queue_in_memory_is_refused_by_commands(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Guards against a publish that prints a seq although the message disappears with the process."""
    assert run([*command.split(), "--url", "memory://"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "a memory:// queue lives in one process" in shown.err


def test_python_m_fairlane_is_the_command_line() -> None:
    done = run_command([sys.executable, "-m", "fairlane", "backends", "--json"]).ok()
    assert json.loads(done.out.splitlines()[0])["backend"] == "memory"
