"""What becomes of a command whose output nobody gets: the disk is full, or the reader of a pipe has gone."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

_OF_FILES = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF})


class Unprinted(Exception):
    """Something was done, and saying so failed. No `OSError`: Typer ends the process on some of those."""

    def __init__(self, error: OSError, done: str) -> None:
        super().__init__(f"{unwritable(error)}; {done}")
        self.reader_gone = isinstance(error, BrokenPipeError)


@contextlib.contextmanager
def telling(done: str) -> Iterator[None]:
    """Print in this context what was done; the error says it if that fails.

    Raises:
        Unprinted: nobody gets what was printed.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise Unprinted(error, done) from error


def unwritable(error: OSError) -> str:
    """Say in plain words that the output was not written."""
    return f"the output could not be written: {error.strerror}"


def is_of_output(error: OSError) -> bool:
    """Tell whether an error that names no file is one of standard output."""
    return error.filename is None and error.errno in _OF_FILES


def drop_stdout() -> None:
    """Send the rest of the output nowhere: Python writes its buffer at exit, which would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
