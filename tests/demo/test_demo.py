"""The demo as people run it, on every backend, and what it does when something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlane import AuthenticationFailed, FairlaneError, QueueStatus, migrate
from fairlane.backends import MANIFESTS
from fairlane.cli.runner import run
from fairlane.demo import Plan, Report, run_demo, stage
from fairlane.demo.events import published
from fairlane.demo.worker import Job, encode
from tests.commands import environment, fairlane, fairlane_command
from tests.harness import KITS, Kit

EMPTY = QueueStatus("q", 0, 0, 0, 0, 0, None)
PROOFS = ["final state", "order", "nothing lost", "killed", "recovered", "drained"]


class Nobody:
    """A watcher that does not look."""

    def begins(self, *_: object) -> None: ...
    def progress(self, *_: object) -> None: ...
    def looks(self, *_: object) -> None: ...
    def leaves(self, *_: object) -> None: ...
    def killed(self, *_: object) -> None: ...


class Listing(Nobody):
    """A watcher that keeps the names of the queues that could not be removed."""

    def __init__(self) -> None:
        self.left: list[object] = []

    def leaves(self, *queue: object) -> None:
        self.left.extend(queue)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files. The demo must leave it empty, and must leave no process behind."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []
    assert children(os.getpid()) == []


def children(pid: int) -> list[int]:
    """Return the demo's workers among the children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_text(errors="replace")  # arguments of other processes may not be UTF-8
        except OSError:
            continue
        if parent == pid and "fairlane.demo.worker" in command:
            found.append(int(path.name))
    return found


def test_the_whole_log_on_an_embedded_queue(temporary: Path) -> None:
    done = fairlane("demo").ok()
    assert done.err == ""
    assert "\x1b" not in done.out
    assert "3,702 events of 645 packages" in done.out
    for moment in ("Before", "In the middle", "After", "Killed worker-1", "ended by signal 9"):
        assert moment in done.out
    assert done.out.count("holds  ") == len(PROOFS)
    assert "FAILS" not in done.out


@pytest.mark.backends(*(name for name in KITS if name != "memory"))
@pytest.mark.twins("sync")
@pytest.mark.cluster
def test_every_backend(arm: tuple[Kit, str], temporary: Path, tmp_path: Path) -> None:
    kit, _ = arm
    kit.folder = tmp_path
    url, events = kit.url("none"), min(300, kit.caps.tested_messages)
    report = fairlane("demo", "--url", url, "--events", events, "--json", timeout=150).ok().json
    assert report["holds"] is True
    assert [proof["name"] for proof in report["proofs"]] == PROOFS
    assert (report["backend"], report["kind"], report["workers"]) == (kit.backend, "processes", 4)
    assert report["events"] == events
    assert sum(report["handled"].values()) >= events
    assert report["casualty"]["held"] is True
    assert report["casualty"]["shown"] is kit.caps.inspect_messages
    assert (report["casualty"]["waiting"] is not None) is kit.caps.inspect_messages
    assert set(report["views"]) == {"before", "middle", "after"}
    assert report["views"]["before"]["queue"]["messages"] == events
    assert report["views"]["after"]["queue"]["messages"] == 0
    assert migrate.status(url, queue=report["queue"]).found is None, "its queue is removed"


@pytest.mark.backends("sqs")
@pytest.mark.twins("sync")
def test_what_a_backend_does_not_tell_is_not_invented(arm: tuple[Kit, str], temporary: Path, tmp_path: Path) -> None:
    kit, _ = arm
    kit.folder = tmp_path
    done = fairlane("demo", "--url", kit.url("none"), "--events", 100, timeout=150).ok()
    assert "The figures of sqs are approximate, and it does not show groups or leases." in done.out
    assert "wait behind it" not in done.out
    assert "by the time of its lease; the queue shows no leases" in done.out
    assert "None" not in done.out
    assert done.out.count("holds  ") == len(PROOFS)


def test_the_group_of_the_last_message_may_be_removed_a_moment_later() -> None:
    """Some backends carry out an ack in several steps. Guards against a look between two steps of the last ack."""
    looks = [QueueStatus("q", 1, 1, 0, 0, 1, 1.0), QueueStatus("q", 1, 1, 0, 0, 0, None), EMPTY]
    capabilities = MANIFESTS["mongo"].capabilities
    queue: Any = SimpleNamespace(inspect=SimpleNamespace(queue=lambda: looks.pop(0)), capabilities=capabilities)
    report = Report("mongo", "q", "processes", 2, 1, 1)
    unused: Any = None
    run = stage._Run(Plan(), [], queue, unused, report, Nobody())
    assert run._drain() == EMPTY


def test_threads_where_the_queue_lives_in_one_process(temporary: Path) -> None:
    done = fairlane("demo", "--url", "memory://", "--events", 200).ok()
    assert "worker threads, since this queue lives in one process" in done.out
    assert "a thread, which ended and left its lease and its work unfinished" in done.out


def test_keep_leaves_the_queue_and_the_same_name_is_refused(temporary: Path, tmp_path: Path) -> None:
    where = ("--url", f"sqlite:///{tmp_path}/kept.db", "--queue", "kept")
    report = fairlane("demo", *where, "--keep", "--json", "--events", 100).ok().json
    assert report["queue"] == "kept"
    assert migrate.status(where[1], queue="kept").ready
    assert "name a new queue" in fairlane("demo", *where).failed_in_one_line()
    assert migrate.status(where[1], queue="kept").ready
    for path in temporary.rglob("*"):
        assert path.name.startswith(("fairlane-demo-", "application.db"))
        if path.is_file():
            path.unlink()
    for path in temporary.iterdir():
        path.rmdir()


def with_usual_signals() -> None:
    """Handle signals as in a terminal: a shell in the background ignores SIGINT, and `nohup` ignores SIGHUP."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_no_worker_outlives_the_demo(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        fairlane_command("demo", "--visibility", "30"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({"TMPDIR": str(tmp_path)}),
        preexec_fn=with_usual_signals,
    )
    deadline = time.monotonic() + 60
    while len(workers := children(process.pid)) < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err == b""
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker is left"
        time.sleep(0.01)
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def small(**changes: object) -> Plan:
    return Plan(**{"events": 100, "visibility": 0.5, "patience": 2.0, **changes})  # type: ignore[arg-type]


def test_a_worker_that_fails_ends_the_demo(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.demo.crew.encode", lambda job: encode(job).replace(job.database, "/no/such/folder/x"))
    with pytest.raises(FairlaneError, match=r"worker-\d failed: OperationalError: unable to open database file"):
        run_demo(small(patience=60.0), Nobody())


def test_a_worker_that_dies_ends_the_demo(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.demo.crew.encode", lambda job: "no job\n")
    with pytest.raises(FairlaneError, match=r"worker-\d ended too early: exit code 1 json.decoder.JSONDecodeError"):
        run_demo(small(patience=60.0), Nobody())


def test_a_queue_that_the_demo_cannot_remove_is_named(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a queue that stays in the database under an unknown name, without a message of the command."""
    watcher = Listing()

    def refuse(*_: object, **__: object) -> None:
        raise FairlaneError("no right to drop it")

    monkeypatch.setattr("fairlane.demo.stage.migrate.downgrade", refuse)
    monkeypatch.setattr("fairlane.demo.crew.encode", lambda job: "no job\n")
    with pytest.raises(FairlaneError, match="ended too early"):
        run_demo(small(url=f"sqlite:///{tmp_path}/q.db", queue="for_the_demo", patience=60.0), watcher)
    assert watcher.left == ["for_the_demo"]


def test_a_queue_that_was_never_made_is_not_named(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against advice to remove what is not there, for a user who may not make a queue."""
    watcher = Listing()

    def refuse(*_: object, **__: object) -> None:
        raise AuthenticationFailed("sqlite", "here", "no right to make it")

    monkeypatch.setattr("fairlane.demo.stage.migrate.upgrade", refuse)
    with pytest.raises(AuthenticationFailed):
        run_demo(small(url=f"sqlite:///{tmp_path}/q.db"), watcher)
    assert watcher.left == []


def test_workers_that_hang_end_the_demo(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.demo.crew.ThreadMember.order", lambda self, word: None)
    with pytest.raises(FairlaneError, match=r"nothing was handled for 3 s; 0 of 100 are done"):
        run_demo(small(url="memory://"), Nobody())


def test_workers_that_never_start_end_the_demo(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.demo.crew.encode", lambda job: "")
    with pytest.raises(FairlaneError, match=r"worker-1, .* did not start in 2 s"):
        run_demo(small(), Nobody())


def test_a_proof_that_fails_is_exit_code_1(
    temporary: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "published", lambda event: {**published(event), "version": "0"})
    assert run(["demo", "--events", "100"]) == 1
    shown = capsys.readouterr().out
    assert "FAILS  final state  0 of" in shown
    assert "holds  drained" in shown


def test_a_job_holds_the_url_where_no_other_user_can_read_it() -> None:
    job = Job("postgresql://u:geheim@h/x", "q", "worker-1", 2.5, "/x", 3, ("a",))
    assert json.loads(encode(job))["url"] == job.url
    source = Path(__file__).resolve().parents[2] / "src/fairlane/demo/crew.py"
    assert '"-m", "fairlane.demo.worker"]' in source.read_text()  # no part of the job is an argument
