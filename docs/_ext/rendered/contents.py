"""What the code says, as Markdown: layouts, operations, promises.

No Sphinx here, so that tests can look at what a page gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.capabilities import PROMISES, TABLE, Capabilities


def seconds(value: float) -> str:
    """Return a time in the largest unit that leaves no zero before the point."""
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} us"


def promises_of_all() -> str:
    """Return the table of all backends, and below it what holds where a promise does not hold in full."""
    names = list(TABLE)
    lines = [f"| | {' | '.join(names)} |", "|---|" + ":-:|" * len(names)]
    for number, (name, _) in PROMISES.items():
        cells = ("yes" if TABLE[backend].keeps(number) else "differs" for backend in names)
        lines.append(f"| {number} {name} | {' | '.join(cells)} |")
    columns = [list(_facts(TABLE[backend])) for backend in names]
    for row, heading in enumerate(_FACTS):
        lines.append(f"| {heading} | {' | '.join(column[row] for column in columns)} |")
    notes = [f"- {backend}, promise {number}: {text}." for backend in names for number, text in _differences(backend)]
    return "\n".join(["", *lines, "", "Where it says *differs*:", "", *notes, "", ""])


_FACTS = ("shared within a", "durability", "clock", "resolution", "publish in your transaction", "looked at with")


def _facts(backend: Capabilities) -> Iterator[str]:
    """What a chooser asks first, in the order of the table's last rows."""
    yield backend.reach
    yield backend.durability
    yield backend.clock
    yield seconds(backend.resolution)
    yield "yes" if backend.transactional_publish else "no"
    yield "views" if backend.sql_views else "`inspect`" if backend.inspect_messages else "counts"


def _differences(backend: str) -> list[tuple[int, str]]:
    return sorted(TABLE[backend].differences.items())


PARTS: dict[str, Callable[..., str]] = {
    "promises-of-all": promises_of_all,
}
"""The parts by their names in `{rendered} name …`."""
