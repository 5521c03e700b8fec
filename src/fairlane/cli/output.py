"""Handle output that cannot be written: the disk is full, or the reader of a pipe has ended."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

_OF_FILES = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF})


class Unprinted(Exception):
    """A command did something, and its output could not be written. Not an `OSError`, since Typer handles some."""

    def __init__(self, error: OSError, done: str) -> None:
        super().__init__(f"{unwritable(error)}; {done}")
        self.reader_gone = isinstance(error, BrokenPipeError)


@contextlib.contextmanager
def telling(done: str) -> Iterator[None]:
    """Print the result of a command in this context. If that fails, the error says what was done.

    Raises:
        Unprinted: the output could not be written.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise Unprinted(error, done) from error


def unwritable(error: OSError) -> str:
    """Return the message for output that could not be written."""
    return f"the output could not be written: {error.strerror}"


def is_of_output(error: OSError) -> bool:
    """Return whether an error without a file name is probably one of standard output."""
    return error.filename is None and error.errno in _OF_FILES


def drop_stdout() -> None:
    """Discard the rest of the output. Python writes its buffer at exit, which would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
