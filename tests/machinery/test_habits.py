"""The checks before a commit and in CI are the same, and find what they should find."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import rooms
from tests.commands import CHECKOUT


def test_ci_runs_lint_documents_and_tests_in_this_order() -> None:
    """Guards against a check that only some people run by hand."""
    assert "for step in lint docs test; do" in (CHECKOUT / ".ci" / "run").read_text()
    assert "entry: make lint\n" in (CHECKOUT / ".pre-commit-config.yaml").read_text()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Say why\n\nBecause nobody knows it later.\n", 0),
        ("Say why\n", 1),
        ("Say why\nat once\n", 1),
        (f"{'x' * 73}\n\nBecause.\n", 1),
        ("Say why\n\n# only a comment\n", 1),
    ],
)
def test_a_commit_message_has_a_short_subject_and_says_why(message: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_text(message)
    done = subprocess.run([CHECKOUT / ".ci" / "commit-message", file], capture_output=True, check=False)
    assert done.returncode == code


class Repository:
    """A repository with the checks, which were added after a commit without a body."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit("An old one")
        shutil.copytree(CHECKOUT / ".ci", folder / ".ci")
        self.git("add", ".ci")
        self.commit("Check messages\n\nSince nobody did.")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "protocol.file.allow=always")
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def commit(self, message: str) -> None:
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", message)

    def check(self, folder: Path | None = None) -> int:
        script = (folder or self.folder) / ".ci" / "commits"
        return subprocess.run([script], capture_output=True, check=False).returncode


def test_new_commits_are_checked_and_no_others(tmp_path: Path) -> None:
    """Guards against a check that runs only for people who have installed the hook."""
    repository = Repository(tmp_path)
    assert repository.check() == 0, "what is older than the check has not to pass it"
    repository.commit("Say why\n\nBecause nobody knows it later.")
    assert repository.check() == 0
    repository.commit("Say nothing")
    repository.commit("Say why again\n\nBecause.")
    assert repository.check() == 1
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert repository.check() == 0, "what is published cannot be changed any more"


def test_without_history_there_is_nothing_to_check(tmp_path: Path) -> None:
    """This is so in an archive, or in the shallow clone of a CI."""
    repository = Repository(tmp_path / "whole")
    repository.commit("Say nothing")
    repository.git("clone", "--quiet", "--depth", "1", f"file://{repository.folder}", str(tmp_path / "shallow"))
    assert repository.check(tmp_path / "shallow") == 0
    shutil.copytree(CHECKOUT / ".ci", tmp_path / "archive" / ".ci")
    assert repository.check(tmp_path / "archive") == 0


def test_the_rules_of_the_layout_are_kept() -> None:
    assert [*rooms.names_outside(), *rooms.odd_files(), *rooms.drivers_imported()] == []


def test_a_backend_s_name_outside_of_its_folder_is_found(tmp_path: Path) -> None:
    """Guards against a check that finds nothing because it looks at nothing."""
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends" / "here.py").write_text('NAME = "redis"\n')
    (tmp_path / "elsewhere.py").write_text('"""redis"""\nif backend == "redis":\n    pass\n')
    assert [line.partition(" ")[0] for line in rooms.names_outside(tmp_path)] == ["elsewhere.py:2:"]


def test_a_file_without_a_role_is_found(tmp_path: Path) -> None:
    package = tmp_path / "redis"
    package.mkdir()
    (package / "wire.py").touch()
    (package / "store.py").touch()  # a name that only memory may use
    assert [line.partition(":")[0] for line in rooms.odd_files(tmp_path)] == ["backends/redis/store.py"]
