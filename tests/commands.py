"""Run `fairlane` and `alembic` as people do: in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forks

CHECKOUT = forks.CHECKOUT


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ok(self) -> Done:
        assert self.code == 0, (self.code, self.out, self.err)
        return self

    def failed_in_one_line(self) -> str:
        """Return the error, after a check that the command printed nothing else."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.err.startswith("fairlane: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.out == ""
        return self.err


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that chooses a backend."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "STM_", "FORCE_"))}
    return {**kept, "PYTHONIOENCODING": "utf-8", **(extra or {})}


def fairlane_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fairlane.cli", *map(str, arguments)]


def fairlane(
    *arguments: object,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Done:
    """Do what `fairlane_command` does in a new interpreter, but faster: see `forks`."""
    return _forked("fairlane.cli", arguments, env=env, stdin=stdin, cwd=cwd, timeout=timeout)


def alembic(url: str, queue: str, *arguments: object) -> Done:
    """Plain Alembic, from the root of the checkout."""
    return _forked("alembic", ("-x", f"url={url}", "-x", f"queue={queue}", *arguments), cwd=CHECKOUT)


def _forked(
    module: str,
    arguments: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Done:
    assert not {name for name in env or {} if name.startswith("PYTHON")}, "this needs an interpreter of its own"
    code, out, err = forks.run_module(
        module,
        [str(argument) for argument in arguments],
        env=environment(env),
        stdin=None if stdin is None else stdin.encode(),
        cwd=cwd,
        timeout=timeout,
    )
    return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))


def run(
    command: list[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Done:
    done = subprocess.run(
        command,
        env=environment(env),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=cwd,
        timeout=timeout,
    )
    return Done(done.returncode, done.stdout, done.stderr)
