"""Importing Fairlane is cheap, and works where a system lacks what others have."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

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
    """The least of several runs, less what Python itself takes: others on the machine make any one of them slow."""
    run("import fairlane")  # compiles it
    bare = min(cpu_seconds("") for _ in range(5))
    assert min(cpu_seconds("import fairlane") for _ in range(5)) - bare < 0.15
