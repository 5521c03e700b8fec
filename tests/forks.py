"""Run Python programs in forks of a process that has imported the large libraries once.

A command line spends a second of processor time on imports, and the suite runs hundreds of them. Here each is still a
process of its own, with its own environment, folder, streams and exit code; only what other projects have written is
there already. Fairlane itself is imported in the fork. What depends on how an interpreter starts (`PYTHON…`
variables, a terminal) needs a real one.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

PRELOADED = (
    *("typer", "rich.table", "rich.progress", "jinja2", "sqlalchemy", "alembic.config", "alembic.command"),
    *("psycopg", "psycopg_pool", "redis", "aiosqlite", "pymongo", "boto3", "requests", "httpx", "libsql_client"),
)

CHECKOUT = Path(__file__).resolve().parents[1]

_server: tuple[subprocess.Popen[bytes], str] | None = None
_starting = threading.Lock()


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
    with (
        _readable(stdin) as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX) as line,
    ):
        line.settimeout(timeout)
        line.connect(_address())
        socket.send_fds(line, [b"!"], [given.fileno(), out.fileno(), err.fileno()])
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
    """Return a pipe that somebody writes to, for a program that reads once; nothing at all for None."""
    if data is None:
        return Path(os.devnull).open("rb")
    reader, writer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(reader, "rb")


def _address() -> str:
    """Return where the server of this process listens; start it the first time."""
    global _server
    with _starting:
        if _server is None:
            path = str(Path(tempfile.mkdtemp(prefix="fairlane-forks-")) / "socket")
            command = [sys.executable, "-m", "tests.forks", path]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "the process that forks has not started"
            _server = process, path
            atexit.register(_stop, process, path)
        return _server[1]


def _stop(process: subprocess.Popen[bytes], path: str) -> None:
    assert process.stdin is not None
    process.stdin.close()  # its sign to end, which also comes when this process is killed
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()
    with suppress(OSError):
        Path(path).unlink()
        Path(path).parent.rmdir()


def serve(path: str) -> None:
    """Take requests until stdin ends. Each is served in a fork, which forks once more for the program itself."""
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that serve
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([door, 0], [], [])
            if 0 in readable:
                return
            line, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _attend(line)
            line.close()


def _attend(line: socket.socket) -> None:
    """Serve one request, and end."""
    _, streams, _, _ = socket.recv_fds(line, 1, 3)
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


def _become(request: dict[str, object], streams: list[int]) -> None:
    """Be a new interpreter, as far as a program can tell, and end with its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 64)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(str(request["cwd"]))
    sys.path[0] = str(request["cwd"])
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")
    out = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), encoding="utf-8")
    err = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    sys.stdout = sys.__stdout__ = out
    sys.stderr = sys.__stderr__ = err
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
        code = 0 if code is None else (print(code, file=err), 1)[1]
    try:
        atexit._run_exitfuncs()
        out.flush()
        err.flush()
    finally:
        os._exit(code & 0xFF)


if __name__ == "__main__":
    serve(sys.argv[1])
