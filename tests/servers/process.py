"""A server's process, as the code that started it sees it. If that code does not end it, `keeper.py` does."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
UNPRIVILEGED_USERS = ("postgres", "nobody")


@dataclass(frozen=True)
class Program:
    """An executable file and the environment that it needs."""

    path: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *args: str, user: str | None = None, cwd: Path | None = None) -> str:
        """Run it to its end. Return what it printed."""
        done = subprocess.run(
            [str(self.path), *args],
            env=clean_environment(self.env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **({"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}),  # type: ignore[call-overload]
        )
        if done.returncode:
            raise ServerError(f"{self.path.name} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        return str(done.stdout)


class ServerError(Exception):
    """A server could not be installed, started or reached; the message says what to do."""


class Process:
    """One running server process under its keeper."""

    def __init__(
        self,
        program: Program,
        args: Sequence[str],
        *,
        folder: Path,
        log: Path,
        stop_signal: int,
        user: str | None = None,
    ) -> None:
        account = pwd.getpwnam(user) if user else None
        spec = {
            "parent": os.getpid(),
            "argv": [str(program.path), *args],
            "env": clean_environment({"HOME": str(folder), **program.env}),
            "folder": str(folder),
            "log": str(log),
            "stop_signal": int(stop_signal),
            "uid": account.pw_uid if account else None,
            "gid": account.pw_gid if account else None,
        }
        with log.open("ab") as errors:
            # A new session: Ctrl-C in a terminal must reach only the runner, which then stops its servers.
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", str(KEEPER), json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as answer:
            first_line = answer.readline().strip()
        if not first_line:
            self._keeper.wait()
            raise ServerError(f"{program.path} could not be started:\n{log.read_text(errors='replace')[-2000:]}")
        self.pid = int(first_line)

    @property
    def running(self) -> bool:
        return self._keeper.poll() is None

    def stop(self) -> None:
        """End the server in its own orderly way (by force after some time)."""
        self._keeper.terminate()
        self._keeper.wait()

    def kill(self) -> None:
        """End the server as a crash would."""
        if self.running:
            self._keeper.send_signal(signal.SIGUSR1)
        self._keeper.wait()


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables that change a server's behaviour (PGDATA, JAVA_TOOL_OPTIONS, a time zone,
    …)."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {"HOME": "/", "LC_ALL": "C.UTF-8", **kept, **extra}


def unprivileged_user() -> str | None:
    """Return the user for a server that refuses to run as root; None if no other user is needed."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ServerError(f"none of the users {', '.join(UNPRIVILEGED_USERS)} exists: run the tests as an ordinary user")


def open_to_everybody(path: Path) -> bool:
    """Return whether any user may enter every folder on the way to `path`."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)
