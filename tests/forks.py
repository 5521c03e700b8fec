"""Run Python programs in forks of a process that has imported the large libraries once.

A command line spends a second of processor time on imports, and the suite runs hundreds of them. Here each command
still has its own process, environment, folder, streams and exit code. Only the libraries of other projects are imported
already. Fairlane itself is imported in the fork. A test that depends on how an interpreter starts (`PYTHON…` variables,
a terminal) needs a real one.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

PRELOADED = (
    *("typer", "rich.table", "rich.progress", "jinja2", "sqlalchemy", "alembic.config", "alembic.command"),
    *("psycopg", "psycopg_pool", "redis", "aiosqlite", "pymongo", "boto3", "requests", "httpx", "libsql_client"),
)

CHECKOUT = Path(__file__).resolve().parents[1]

_started: tuple[subprocess.Popen[bytes], socket.socket] | None = None
_lock = threading.Lock()


def run_module(
    module: str,
    arguments: list[str],
    *,
    env: Mapping[str, str],
    stdin: bytes | None,
    cwd: Path | None,
    timeout: float,
) -> tuple[int, bytes, bytes]:
    """Run `python -m module` in a fork; its exit code, and what it wrote.

    Raises:
        subprocess.TimeoutExpired: it did not end, and was killed.
    """
    request = {"module": module, "arguments": arguments, "env": dict(env), "cwd": str(cwd or Path.cwd())}
    line, other_end = socket.socketpair()
    with _readable(stdin) as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, line:
        with _lock, other_end:
            handed = [other_end.fileno(), given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(_server(), [b"!"], handed)
        line.settimeout(timeout)
        line.sendall(json.dumps(request).encode() + b"\n")
        with line.makefile("r") as answers:
            process = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError as error:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired([module, *arguments], timeout) from error
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def _readable(data: bytes | None) -> BinaryIO:
    """Return the reading end of a pipe into which a thread writes the text; /dev/null for None."""
    if data is None:
        return Path(os.devnull).open("rb")
    reader, writer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(reader, "rb")


def _server() -> socket.socket:
    """Return the connection to the server of this process; start it the first time."""
    global _started
    if _started is None:
        control, other_end = socket.socketpair()
        with other_end:
            # it ends when this process is gone, however it ended
            command = [sys.executable, "-m", "tests.forks", str(other_end.fileno())]
            process = subprocess.Popen(command, pass_fds=[other_end.fileno()], stdin=subprocess.DEVNULL, cwd=CHECKOUT)
        _started = process, control
    return _started[1]


def serve(control: socket.socket) -> None:
    """Take requests until the other end is closed. Each is served in a fork, which forks once more for the program
    itself."""
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no code waits for the forks that serve
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        sign, handed, _, _ = socket.recv_fds(control, 1, 4)
        if not sign:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(socket.socket(fileno=handed[0]), handed[1:])
        for number in handed:
            os.close(number)


def _attend(line: socket.socket, streams: list[int]) -> None:
    """Serve one request, and end."""
    with line.makefile("rw") as file:
        request = json.loads(file.readline())
        process = os.fork()
        if process == 0:
            _become(request, streams)
        file.write(f"{process}\n")
        file.flush()
        _, status = os.waitpid(process, 0)
        with suppress(BrokenPipeError):
            file.write(f"{os.waitstatus_to_exitcode(status)}\n")
            file.flush()
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Be a new interpreter, as far as a program can tell, and end with its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 64)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(str(request["cwd"]))
    sys.path[0] = str(request["cwd"])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")  # type: ignore[misc]  # ours
    # the same objects, since imported modules may hold references to them
    cast(io.TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8", errors="strict")
    cast(io.TextIOWrapper, sys.stderr).reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.argv = ["", *request["arguments"]]
    code: object = 0
    try:
        runpy.run_module(str(request["module"]), run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if code is None or not isinstance(code, int):
        code = 0 if code is None else (print(code, file=sys.stderr), 1)[1]
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
