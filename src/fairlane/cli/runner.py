"""Run a command and turn whatever goes wrong into one line and an exit code.

Exit codes: 0 done; 1 "no" as an answer (nothing to claim, not ready, a proof failed); 2 an error; 130 Ctrl-C;
141 the reader of a pipe went away; 143 terminated.
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
    """The reader of the output went away. Typer would make exit code 1 of a broken pipe, which means "no" here."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line given, `sys.argv` by default, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not _streams_are_open():
        _report(ValueError("standard output is closed, nothing was done: send it to /dev/null"), given)
        return FAILED
    _make_streams_forgiving()
    try:
        previous = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:
        previous = None  # signals can only be set in the main thread; tests run in others
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

    # without its standalone mode Typer raises errors instead of printing them, and returns the code of an `Exit`
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
    """Say what happened: our own errors and wrong input in their words, others with their type."""
    from fairlane.errors import FairlaneError

    if hasattr(error, "format_message"):  # wrong options and arguments, as Typer (or the click it uses) reports them
        return f"{error.format_message()} (try --help)"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (FairlaneError, ValueError, TypeError, OSError)) and str(error):
        return str(error)
    if type(error).__name__ == "Abort":
        return "stopped"
    return f"unexpected {type(error).__name__}: {error} (FAIRLANE_TRACEBACK=1 shows where)"


def _streams_are_open() -> bool:
    """Tell whether what is printed arrives: a seq or a lease that nobody gets is worse than an error.

    Descriptors that were closed are taken: else the database's file would get one, and what libraries print to it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is that of the closed stream
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    return sys.stdout is not None


def _make_streams_forgiving() -> None:
    """Print every character: one that the encoding of the terminal lacks is shown as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    # Python writes the rest of its buffer at exit, which would fail again
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)  # an exception, so that `finally` blocks end what was started
