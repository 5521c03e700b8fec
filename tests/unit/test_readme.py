"""The README's table of promises is rendered from `fairlane.capabilities`.

FAIRLANE_UPDATE_GOLDEN=1 pytest tests/unit/test_readme.py     renders it anew
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fairlane.capabilities import PROMISES, TABLE, Capabilities

README = Path(__file__).parents[2] / "README.md"
MARKED = re.compile(r"(?<=<!-- capabilities -->\n).*?(?=<!-- /capabilities -->)", re.DOTALL)


def seconds(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} us"


def facts(backend: Capabilities) -> Iterator[str]:
    """What a chooser asks first, in the order of the table's last rows."""
    yield backend.reach
    yield backend.durability
    yield backend.clock
    yield seconds(backend.resolution)
    yield "yes" if backend.transactional_publish else "no"
    yield "views" if backend.sql_views else "`inspect`" if backend.inspect_messages else "counts"


FACTS = ("shared within a", "durability", "clock", "resolution", "publish in your transaction", "looked at with")


def rendered() -> str:
    """Return the table, and below it what holds where a promise does not hold in full."""
    names = list(TABLE)
    lines = [f"| | {' | '.join(names)} |", "|---|" + ":-:|" * len(names)]
    for number, (name, _) in PROMISES.items():
        cells = ("yes" if TABLE[backend].keeps(number) else "differs" for backend in names)
        lines.append(f"| {number} {name} | {' | '.join(cells)} |")
    columns = [list(facts(TABLE[backend])) for backend in names]
    for row, heading in enumerate(FACTS):
        lines.append(f"| {heading} | {' | '.join(column[row] for column in columns)} |")
    notes = [
        f"- {backend}, promise {number}: {text}."
        for backend in names
        for number, text in sorted(TABLE[backend].differences.items())
    ]
    return "\n".join(["", *lines, "", "Where it says *differs*:", "", *notes, "", ""])


def test_the_readme_says_of_each_backend_what_the_code_says() -> None:
    """Guards against a promise in the README that a backend has stopped to keep, or a backend that is missing there."""
    text = README.read_text()
    if os.environ.get("FAIRLANE_UPDATE_GOLDEN"):
        text = MARKED.sub(lambda _: rendered(), text)
        README.write_text(text)
    found = MARKED.search(text)
    assert found is not None
    assert found.group() == rendered()
