"""Run a command, and report an error as one line and an exit code.

Exit codes: 0 done; 1 the answer is "no" (nothing to claim, not ready, a proof failed); 2 an error; 130 Ctrl-C;
141 the reader of a pipe closed it; 143 terminated by SIGTERM; 129 the terminal was closed.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType

from fairlane.cli.output import Unprinted, drop_stdout, is_of_output, unwritable
from fairlane.cli.text import one_line, without_secrets

FAILED, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
OF_SIGNALS = 128
"""What a shell adds to the number of the signal that ended a command."""

ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that ask a command to end. Windows has no SIGHUP."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of `sys.argv`, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not _streams_are_open():
        _report(ValueError("standard output is closed, so nothing was done: redirect it to /dev/null"), given)
        return FAILED
    _make_streams_forgiving()
    with _ending_in_order():
        return _guarded(given)


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let signals that end the process raise an exception, so that `finally` blocks end what was started."""
    previous = {}
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            with contextlib.suppress(ValueError):  # only the main thread can set signals; tests run in others
                previous[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _guarded(given: list[str]) -> int:
    try:
        code = _invoke(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop_stdout()
        return BROKEN_PIPE
    except Unprinted as error:
        _report(error, given)
        drop_stdout()
        return BROKEN_PIPE if error.reader_gone else FAILED
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # Typer and rich make exit code 1 of it, which means "no"
            drop_stdout()
            return BROKEN_PIPE
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except Exception as error:
        _report(error, given)
        if isinstance(error, OSError):
            drop_stdout()
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
        dash = "; write -- before arguments that begin with a dash" if hasattr(error, "option_name") else ""
        return f"{error.format_message()} (try --help{dash})"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and is_of_output(error):
        return unwritable(error)
    if isinstance(error, Unprinted):
        return str(error)
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


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(OF_SIGNALS + number)
