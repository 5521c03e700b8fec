"""The previous release, as it was: its package with its templates."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

VERSION, REVISION, COMMIT = "0.1.0", "0001", "ba8720ef2d220a5da038a03d4bbd9e38e5bf9073"
"""The previous release: its version, its newest revision, its commit."""

PARTS = ("src", "schema", "procedures", "lua", "alembic.ini")


@dataclass(frozen=True)
class Release:
    """A version of Fairlane that other processes can run.

    Attributes:
        root: its checkout.
    """

    root: Path

    def environment(self) -> dict[str, str]:
        """Return the environment in which a Python process imports this version."""
        return {**os.environ, "PYTHONPATH": str(self.root / "src")}

    def migrate(self, url: str, queue: str, revision: str = "head", **options: Any) -> None:
        """Migrate as this version does, in a process of its own."""
        chosen = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "fairlane", "migrate", revision, "--url", url, "--queue", queue, *chosen]
        done = subprocess.run(command, env=self.environment(), cwd=self.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


NOW = Release(ROOT)
"""This version."""


def unpack(folder: Path) -> Release:
    """Unpack the previous release. Skip the test if this is no clone with the history."""
    git = ["git", "-C", str(ROOT)]
    known = subprocess.run([*git, "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, text=True)
    if known.returncode:
        pytest.skip(f"the commit of release {VERSION}, {COMMIT[:7]}, is not here: this needs a clone with its history")
    packed = subprocess.run([*git, "archive", COMMIT, *PARTS], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Release(folder)
