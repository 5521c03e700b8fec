"""Run the blocks of a page, in order, in a new folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.commands import environment
from tests.docs.addresses import Addresses
from tests.docs.languages import CHECKED, NOT_RUN
from tests.docs.outputs import differs
from tests.docs.reading import BadPage, Block, Page

SECONDS = 120
"""The seconds for which a block may run."""

SESSION = """
[ ! -e "$1" ] || . "$1"
eval "$2"
code=$?
{ export -p; printf 'cd -- %q\\n' "$PWD"; } >"$1"
exit "$code"
"""
"""Runs a command in the folder and environment that the previous one left, and writes down those for the next one."""


class Interpreter:
    """A Python process that runs blocks which share a namespace."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("interpreter.py")],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def perform(self, code: str, page: Page, line: int, output: Path) -> bool:
        """Run a block, which prints into a file. Return whether it ran to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"code": code, "page": str(page.path), "line": line, "output": str(output)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() == "true\n"

    def close(self) -> None:
        """End it. What the blocks have left open is closed as at the end of a program, unless that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        end_group(self._process)


class Run:
    """One page while it is run. `folder` belongs to the page; the runner keeps its own files beside it."""

    def __init__(self, page: Page, place: Path, addresses: Addresses, env: dict[str, str]) -> None:
        self._page = page
        self._addresses = addresses
        self._env = environment(env) | {"HOME": str(place)}
        self._env.pop("COLUMNS", None)
        self._place = place
        self._folder = place / "page"
        self._folder.mkdir()
        self._interpreter: Interpreter | None = None
        self._printed: str | None = None
        self._outputs = 0
        self._sessions: list[subprocess.Popen[bytes]] = []

    def all(self) -> None:
        """Run every block.

        Raises:
            BadPage: one of them fails, or shows another output.
        """
        try:
            for block in self._page.blocks:
                self._one(block)
        finally:
            self._end_interpreter()
            for session in self._sessions:
                end_group(session)

    def _one(self, block: Block) -> None:
        if block.language == "python":
            self._python(block)
        elif block.language == "console":
            for line, command, shown in commands(self._page, block):
                self._command(line, command, shown)
        elif block.language == "sql":
            self._command(
                block.line, "psql -X -q -v ON_ERROR_STOP=1 -f - <<'END-OF-BLOCK'\n" + block.text + "END-OF-BLOCK", None
            )
        elif block.language in CHECKED:
            try:
                CHECKED[block.language](block.text)
            except Exception as error:
                raise BadPage(f"{self._page.at(block.line)}: this is no {block.language}: {error}") from error
        elif block.language not in NOT_RUN:
            raise BadPage(f"{self._page.at(block.line)}: no test runs {block.language or 'a block without language'}")
        elif "output" in block.marks:
            self._compare(block.line, block.text, self._output_of_python(block))
        elif block.language == "text" and not any(re.match(r"not run: \w", mark) for mark in block.marks):
            raise BadPage(f"{self._page.at(block.line)}: say why no test runs this: <!-- not run: … -->")

    def _python(self, block: Block) -> None:
        if "continued" not in block.marks:
            self._end_interpreter()
            self._interpreter = Interpreter(self._folder, self._env)
        elif self._interpreter is None:
            raise BadPage(f"{self._page.at(block.line)}: there is no Python block that this one could continue")
        assert self._interpreter is not None
        output = self._new_output()
        done = self._interpreter.perform(self._addresses.real(block.text), self._page, block.line, output)
        self._printed = self._addresses.shown(output.read_text())
        if not done:
            raise BadPage(f"{self._page.at(block.line)}: this program fails:\n{self._printed}")

    def _new_output(self) -> Path:
        """Return a new file for each command: what runs on in the background must not print into the file of the next
        command."""
        self._outputs += 1
        path = self._place / f"printed-{self._outputs}"
        path.touch()
        return path

    def _output_of_python(self, block: Block) -> str:
        if self._printed is None:
            raise BadPage(f"{self._page.at(block.line)}: no Python block comes before this output")
        return self._printed

    def _end_interpreter(self) -> None:
        if self._interpreter is not None:
            self._interpreter.close()
        self._interpreter = None

    def _command(self, line: int, command: str, shown: str | None) -> None:
        printed = self._new_output()
        with printed.open("wb") as output:
            session = subprocess.Popen(
                ["bash", "-c", SESSION, "bash", self._place / "session", self._addresses.real(command)],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._sessions.append(session)
            try:
                code = session.wait(SECONDS)
            except subprocess.TimeoutExpired:
                raise BadPage(f"{self._page.at(line)}: this does not end: {command}\n{printed.read_text()}") from None
        real = self._addresses.shown(printed.read_text())
        if code:
            raise BadPage(f"{self._page.at(line)}: this fails with exit code {code}: {command}\n{real}")
        if shown is not None:
            self._compare(line, shown, real)

    def _compare(self, line: int, shown: str, real: str) -> None:
        if difference := differs(shown, real):
            raise BadPage(f"{self._page.at(line)}: what comes out is not what is shown:\n{difference}")


def commands(page: Page, block: Block) -> Iterator[tuple[int, str, str]]:
    """Return the commands of a session: the line of each, the command itself, and the output that is shown below it."""
    lines = block.text.splitlines()
    if not lines or not lines[0].startswith("$ "):
        raise BadPage(f"{page.at(block.line)}: a session begins with a command: `$ …`")
    at = 0
    while at < len(lines):
        start, command = at, lines[at][2:]
        while command.endswith("\\") and at + 1 < len(lines):
            at += 1
            command += "\n" + lines[at]
        at += 1
        output = []
        while at < len(lines) and not lines[at].startswith("$ "):
            output.append(lines[at])
            at += 1
        yield block.line + start, command, "\n".join(output)


def write_programs(folder: Path, programs: dict[str, tuple[Path, dict[str, str], list[str]]]) -> None:
    """Put programs into a folder for the PATH: each with the environment and the first arguments that it needs."""
    folder.mkdir()
    for name, (path, env, arguments) in programs.items():
        exports = "".join(f"export {variable}={shlex.quote(value)}\n" for variable, value in env.items())
        script = folder / name
        script.write_text(f'#!/bin/sh\n{exports}exec {shlex.join([str(path), *arguments])} "$@"\n')
        script.chmod(0o755)


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End the processes that this process has started and left; it is the leader of their process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
