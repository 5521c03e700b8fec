"""Compare the output that a block shows with the real one."""

from __future__ import annotations

import difflib
import re

ANYTHING = "…"


def differs(shown: str, real: str) -> str | None:
    """Return how an output differs from the one that is shown, None if it does not.

    `…` in a line stands for any text in it, a line that is only `…` for any lines. Blanks at the end of a line and
    empty lines at the end of an output do not count.
    """
    wanted, found = _lines(shown), _lines(real)
    pattern = "".join(map(_pattern, wanted))
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in found)):
        return None
    return "\n".join(difflib.unified_diff(wanted, found, "shown", "real", lineterm=""))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _pattern(line: str) -> str:
    if line.strip() == ANYTHING:
        return r"(?:.*\n)*?"
    return ".*".join(re.escape(part) for part in line.split(ANYTHING)) + r"\n"
