"""Run one server and end it when the process that asked for it is gone.

Started by `process.py`, one keeper per server. A server must not outlive the test run, however the run ends. So the
keeper checks every second whether its own parent still runs. (PR_SET_PDEATHSIG alone would end a server with the
*thread* that started it.) If the keeper itself is killed, Linux kills the server.

    SIGTERM   end the server with its own stop signal, by force when that takes too long
    SIGUSR1   kill the server
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_STOP = 20.0


def main() -> int:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    wake = watch_signals()
    with Path(spec["log"]).open("ab") as log:
        server = subprocess.Popen(
            spec["argv"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec["folder"],
            env=spec["env"],
            start_new_session=True,
            preexec_fn=die_with_keeper(os.getpid()),
            **({"user": spec["uid"], "group": spec["gid"], "extra_groups": []} if spec["uid"] else {}),
        )
    print(server.pid, flush=True)
    while server.poll() is None:
        if os.getppid() != spec["parent"]:
            stop(server, spec["stop_signal"])
            shutil.rmtree(spec["folder"], ignore_errors=True)
            break
        received = wait_for_signal(wake)
        if signal.SIGUSR1 in received:
            server.kill()
            server.wait()
        elif signal.SIGTERM in received:
            stop(server, spec["stop_signal"])
    return 0


def watch_signals() -> int:
    """Let signals end the wait in `wait_for_signal`. Return the file descriptor to wait for."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def wait_for_signal(wake: int) -> bytes:
    """Return the numbers of the signals that have arrived, after a second at most."""
    select.select([wake], [], [], SECONDS_BETWEEN_LOOKS)
    with contextlib.suppress(BlockingIOError):
        return os.read(wake, 256)
    return b""


def stop(server: subprocess.Popen[bytes], number: int) -> None:
    server.send_signal(number)
    try:
        server.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def die_with_keeper(keeper: int) -> Any:
    """Ask Linux to kill this process when the keeper ends. The new process calls it before it becomes the server."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)

    return ask


if __name__ == "__main__":
    sys.exit(main())
