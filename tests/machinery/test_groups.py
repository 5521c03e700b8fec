"""Tests that share something which only one of them can use at a time run one after another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SHARED = """
import os
import pytest

@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("number", range(8))
def test_one(number):
    with open(os.environ["WORKERS"], "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_the_tests_of_a_group_run_in_one_worker(tmp_path: Path) -> None:
    """Guards against releases of pytest and pytest-xdist that ignore the mark without a word, as pytest 9.2 with
    pytest-xdist 3.8: tests then use up the connections of each other, and fail now and then."""
    (tmp_path / "test_shared.py").write_text(SHARED)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    workers = tmp_path / "workers"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "test_shared.py"],
        cwd=tmp_path,
        env={"PATH": "", "WORKERS": str(workers)},
        check=True,
        timeout=60,
    )
    assert len(workers.read_text().split()) == 8
    assert len(set(workers.read_text().split())) == 1
