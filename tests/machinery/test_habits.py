"""The checks that run before a commit and in CI are the same, and find what they are for."""

from __future__ import annotations

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


def test_the_rooms_of_the_house_are_kept() -> None:
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
    (package / "store.py").touch()  # memory's alone
    assert [line.partition(":")[0] for line in rooms.odd_files(tmp_path)] == ["backends/redis/store.py"]
