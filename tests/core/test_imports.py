"""Importing Fairlane is cheap, and works on systems without some functions of others (Windows)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

HEAVY = ("alembic", "sqlalchemy", "jinja2", "typer", "rich", "asyncio", "ssl")


def run(program: str) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment, timeout=60
    ).stdout


def cpu_seconds(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(program)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_importing_loads_nothing_that_only_migrations_templates_or_the_command_line_need() -> None:
    program = f"import sys, fairlane; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    assert run(program).split() == []


def test_working_on_a_queue_that_is_there_loads_neither_alembic_nor_sqlalchemy() -> None:
    program = (
        "import sys, fairlane\n"
        "with fairlane.connect('memory://') as queue:\n"
        "    queue.publish('g', 1)\n"
        "    queue.ack(queue.claim('w', 30))\n"
        "print(*sorted({'alembic', 'sqlalchemy', 'typer', 'rich'} & set(sys.modules)))"
    )
    assert run(program).split() == []


def test_importing_takes_at_most_150_ms_of_cpu() -> None:
    """Takes the fastest of several runs, minus the time of Python itself. A single run may be slow because of other
    programs."""
    run("import fairlane")  # compiles it
    bare = min(cpu_seconds("") for _ in range(5))
    assert min(cpu_seconds("import fairlane") for _ in range(5)) - bare < 0.15


AS_ON_WINDOWS = """
import asyncio, os, signal, sys  # this system's asyncio needs AF_UNIX, so that stays

for module in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "syslog"):
    sys.modules[module] = None
for holder, names in (
    (os, "fork forkpty register_at_fork getuid geteuid getgid getegid getppid uname kill killpg setsid getpgid waitid "
         "wait wait3 sysconf pread pwrite preadv mkfifo mknod chown lchown statvfs nice sched_getaffinity "
         "get_blocking set_blocking openpty O_CLOEXEC O_NONBLOCK O_NOFOLLOW O_DIRECTORY"),
    (signal, "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGALRM SIGSTOP SIGPIPE alarm setitimer pthread_sigmask "
             "pthread_kill sigwait pause"),
):
    for name in names.split():
        if hasattr(holder, name):
            delattr(holder, name)

import fairlane
from fairlane import migrate

url = "sqlite:///" + sys.argv[1]
with fairlane.connect(url, migrate=True) as queue:
    queue.publish("g", 1)
    queue.ack(queue.claim("w", 30))

async def main():
    async with await fairlane.connect_async(url) as queue:
        await queue.publish("g", 1)
        await queue.ack(await queue.claim("w", 30))

asyncio.run(main())
for manifest in fairlane.backends.MANIFESTS.values():
    manifest.transports()
    manifest.loaded()

from fairlane.cli import main as command

sys.argv = ["fairlane", "publish", "g", "1", "--url", url]
command()
"""


def test_sqlite_and_the_command_line_run_without_what_windows_lacks(tmp_path: Path) -> None:
    """Guards against a call of `os.register_at_fork` during the import: Windows does not have it."""
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS, str(tmp_path / "q.db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
