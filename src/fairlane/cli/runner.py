"""Run a command, and report an error as one line and an exit code.

Exit codes: 0 done; 1 the answer is "no" (nothing to claim, not ready, a proof failed); 2 an error; 130 Ctrl-C;
141 the reader of a pipe closed it; 143 terminated by SIGTERM.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from fairlane.cli.text import one_line, without_secrets

FAILED, INTERRUPTED, BROKEN_PIPE, TERMINATED = 2, 130, 141, 143


class ReaderGone(Exception):
    """The reader of the output closed the pipe. For BrokenPipeError Typer would exit with 1, which means "no" here."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of `sys.argv`, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not _streams_are_open():
        _report(ValueError("standard output is closed, so nothing was done: redirect it to /dev/null"), given)
        return FAILED
    _make_streams_forgiving()
    try:
        previous = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:
        previous = None  # signal handlers can be set only in the main thread; tests call this in other threads
    try:
        return _guarded(given)
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


def _guarded(given: list[str]) -> int:
    try:
        code = _invoke(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, ReaderGone):
        _drop_stdout()
        return BROKEN_PIPE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except Exception as error:
        _report(error, given)
        return FAILED
    return code


def _invoke(given: list[str]) -> int:
    from typer.main import get_command

    from fairlane.cli.app import app

    # without standalone mode Typer raises errors instead of printing them, and returns the code of an `Exit`
    result = get_command(app).main(given or ["--help"], prog_name="fairlane", standalone_mode=False)
    return result if isinstance(result, int) else 0


def _report(error: Exception, given: list[str]) -> None:
    if os.environ.get("FAIRLANE_TRACEBACK"):
        traceback.print_exception(error)
    urls = [*given, *(value for name, value in os.environ.items() if name.startswith("FAIRLANE_"))]
    line = without_secrets(one_line(_describe(error)), urls)
    with contextlib.suppress(OSError):  # stderr may be closed
        print(f"fairlane: {line}", file=sys.stderr)


def _describe(error: Exception) -> str:
    """Return the message of an error, with its type unless it is one of Fairlane's or caused by wrong input."""
    from fairlane.errors import FairlaneError

    if hasattr(error, "format_message"):  # a wrong option or argument, reported by Typer or click
        return f"{error.format_message()} (try --help)"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (FairlaneError, ValueError, TypeError, OSError)) and str(error):
        return str(error)
    if type(error).__name__ == "Abort":
        return "stopped"
    return f"unexpected {type(error).__name__}: {error} (FAIRLANE_TRACEBACK=1 shows where)"


def _streams_are_open() -> bool:
    """Return whether stdout is open. Without it nothing is done, since the printed seq or lease would be lost.

    Closed descriptors are replaced by /dev/null. Otherwise the file of a database could get the number of stdout or
    stderr, and text that a library prints would be written into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is that of the closed stream
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    return sys.stdout is not None


def _make_streams_forgiving() -> None:
    """Print a character as its escape if the encoding of the terminal does not have it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    # at exit Python writes the rest of its buffer, which would fail again
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)  # an exception, so that `finally` blocks end what was started
