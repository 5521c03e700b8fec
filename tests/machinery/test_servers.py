"""The servers of the tests are started on request and always stopped. Other servers are left alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import DEFAULT, OPTIONAL, SERVERS, Server, ServerError, base
from tests.servers.__main__ import chosen
from tests.servers.fake import Fake
from tests.servers.process import clean_environment

CHECKOUT = Path(__file__).resolve().parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

# `python -m tests.servers` with one more kind of server.
MAIN = """
import sys
from tests.servers import SERVERS
from tests.servers.__main__ import main
from tests.servers.fake import Fake
SERVERS["fake"] = Fake
sys.exit(main(sys.argv[1:]))
"""
SHOW_URL = "import os; print(os.environ['FAIRLANE_TEST_FAKE_URL'], flush=True)\n"
WAIT = "import time; time.sleep(60)\n"


@contextlib.contextmanager
def runner(code: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """The runner with a command that executes this Python code beside a fake server."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", "--only", "fake", "--", sys.executable, "-c", code],
        cwd=CHECKOUT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def shown_port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline().strip().rpartition(":")[2])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def eventually(is_so: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


# The runner


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_the_exit_code_of_the_command_is_passed_on(code: str, expected: int) -> None:
    with runner(code) as process:
        assert process.wait(60) == expected


def test_the_last_line_is_the_commands_own() -> None:
    with runner("import sys; print('1 passed', file=sys.stderr)") as process:
        out, err = process.communicate(timeout=60)
    assert out == ""
    assert err.splitlines()[-1] == "1 passed"


def test_the_command_finds_a_running_server_that_is_gone_afterwards() -> None:
    with runner(SHOW_URL + "import time; time.sleep(1)") as process:
        port = shown_port(process)
        assert answers(port)
        assert process.wait(60) == 0
        assert not answers(port)


def test_a_variable_replaces_the_server() -> None:
    with runner(SHOW_URL, FAIRLANE_TEST_FAKE_URL="fake://elsewhere") as process:
        out, err = process.communicate(timeout=60)
    assert out.strip() == "fake://elsewhere"
    assert err == "", "nothing was started, so there is nothing to tell"


def test_only_what_was_started_is_stopped() -> None:
    with Fake() as other, runner("") as process:
        assert process.wait(60) == 0
        assert other.running
        assert answers(other.port)


def test_a_signal_to_the_runner_ends_the_command_and_the_servers() -> None:
    with runner(SHOW_URL + WAIT) as process:
        port = shown_port(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert not answers(port)


def test_the_death_of_the_runner_ends_the_servers() -> None:
    with runner(SHOW_URL + "import os; print(os.getpid(), flush=True)\n" + WAIT) as process:
        port = shown_port(process)
        assert process.stdout is not None
        command = int(process.stdout.readline())
        process.kill()
        eventually(lambda: not answers(port))
        with contextlib.suppress(ProcessLookupError):  # its parent is gone, so this test must end it
            os.kill(command, signal.SIGKILL)


@pytest.mark.parametrize("arguments", [["run", "--only", "nonsense", "--", "true"], ["install", "--only", "x"]])
def test_an_unknown_name_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.servers", *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


# A server's life


def test_a_restarted_server_has_its_port_and_its_folder() -> None:
    with Fake() as server:
        pid, port, folder = server.pid, server.port, server.folder
        (folder / "data").write_text("kept")
        server.restart()
        server.restart(kill=True)
        assert (server.port, server.folder) == (port, folder)
        assert server.pid != pid
        assert answers(port)
        server.stop()
        assert not server.running
        assert server.pids == []
        server.start()
        assert (folder / "data").read_text() == "kept"
    assert not folder.exists()
    assert not answers(port)


def test_no_other_server_gets_the_port_of_a_stopped_server() -> None:
    """Guards against a test that asks its stopped server and gets an answer from the server of another test."""
    with Fake() as server:
        for end in (server.stop, server.kill):
            end()
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", server.port))
            assert not answers(server.port)
            server.start()
            assert answers(server.port)


def test_a_killed_server_can_be_closed() -> None:
    with Fake() as server:
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.running)


def test_a_server_that_does_not_start_tells_why_and_leaves_nothing() -> None:
    server = Fake("broken")
    with pytest.raises(ServerError, match="broken on purpose"):
        server.start()
    with pytest.raises(AssertionError):
        _ = server.folder


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "seconds_to_start", 0.5)
    with pytest.raises(ServerError, match="not ready in time"):
        Fake("deaf").start()


def test_a_server_starts_although_its_port_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    free = base.free_port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(base, "free_port", lambda: next(ports, 0) or free())
        with Fake() as server:
            assert server.port != taken.getsockname()[1]


def test_a_server_outlives_the_thread_that_started_it() -> None:
    server = Fake()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with contextlib.closing(server):
        time.sleep(1.5)  # longer than the time between two checks of the keeper
        assert answers(server.port)


@LINUX
def test_the_death_of_the_keeper_ends_the_server() -> None:
    with Fake() as server:
        keeper = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        eventually(lambda: not answers(server.port))


def test_a_server_sees_no_variable_that_could_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/elsewhere")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    assert clean_environment({"HOME": "/x"}).keys() <= {"HOME", "PATH", "TMPDIR", "LC_ALL"}


# The real ones


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_listens_on_the_loopback_alone_and_comes_back_on_its_port(name: str) -> None:
    with private(name) as server:
        url, pids = server.url, server.pids
        assert pids
        assert all(listening(pid) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"} for pid in pids)
        server.restart(kill=True)
        assert server.url == url
        assert not set(pids) & set(server.pids)
        assert answers(server.port)


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_server_that_the_machine_cannot_run_is_left_out_and_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other servers must still be tested, and the output must say that this one was not."""

    def refuse() -> None:
        raise ServerError("this machine is too old")

    monkeypatch.delenv(SERVERS[name].variable, raising=False)
    monkeypatch.setattr(SERVERS[name], "install", refuse)
    assert chosen(None) == list(DEFAULT)
    said = capsys.readouterr().err
    assert "this machine is too old" in said
    assert name in said
    monkeypatch.setattr(SERVERS[name], "install", lambda: None)
    assert chosen(None) == [*DEFAULT, name]


@contextlib.contextmanager
def private(name: str) -> Iterator[Server]:
    """Return a server of this kind, if there is one. A run that requires servers requires only the usual ones."""
    kind = SERVERS[name]
    required = name in DEFAULT and os.environ.get("FAIRLANE_TEST_REQUIRE_SERVERS")
    if kind.find() is None and (not required or os.environ.get(kind.variable)):
        pytest.skip(f"no {name} here: make servers SERVERS={name}")
    with kind.private() as server:
        yield server


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process accepts connections; on Linux there is at least one."""
    if not sys.platform.startswith("linux"):
        return set()
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                packed = bytes.fromhex(fields[1].partition(":")[0])
                words = [packed[at : at + 4][::-1] for at in range(0, len(packed), 4)]
                found.add(socket.inet_ntop(family, b"".join(words)))
    assert found
    return found
