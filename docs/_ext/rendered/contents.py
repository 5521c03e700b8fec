"""Promises and options from the code, as Markdown. `templated` renders the templates.

This module does not use Sphinx, so that tests can check what a page gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fairlane.backends import MANIFESTS
from fairlane.backends.manifest import Option
from fairlane.capabilities import PROMISES, Capabilities
from rendered.templated import comment, layout, operations, protocol

TABLE = {name: manifest.capabilities for name, manifest in MANIFESTS.items()}


def seconds(value: float) -> str:
    """Return a time in the largest unit that leaves no zero before the point."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (1, "s"), (1e-3, "ms")):
        if value >= size and (unit != "h" or value % size == 0):
            return f"{value / size:g} {unit}"
    return f"{value * 1e6:g} us"


def promises_of_all() -> str:
    """Return the promises that each backend keeps, and below them what holds where one does not hold in full."""
    lines = [f"| | {' | '.join(map(str, PROMISES))} |", "|---|" + ":-:|" * len(PROMISES)]
    for name, entry in TABLE.items():
        cells = ("yes" if entry.keeps(number) else f"[{_DIFFERS}](#{name}-{number})" for number in PROMISES)
        lines.append(f"| [{name}]({name}.md) | {' | '.join(cells)} |")
    names = ", ".join(f"{number} {name}" for number, (name, _) in PROMISES.items())
    notes = [
        f"({name}-{number})=\n\n- {name}, promise {number} ({PROMISES[number][0]}): {text}.\n"
        for name in TABLE
        for number, text in _differences(name)
    ]
    return "\n".join([*lines, "", f"{names}.", "", f"Where it says {_DIFFERS}:", "", *notes])


_DIFFERS = "≠"


def facts_of_all() -> str:
    """Return for each backend what people who choose a backend need first."""
    lines = [f"| | {' | '.join(_FACTS)} |", "|---|" + "---|" * len(_FACTS)]
    lines += [f"| [{name}]({name}.md) | {' | '.join(_facts(entry))} |" for name, entry in TABLE.items()]
    return "\n".join([*lines, ""])


_FACTS = ("shared within a", "durability", "clock", "resolution", "publish in your transaction", "looked at with")


def _facts(backend: Capabilities) -> Iterator[str]:
    """Yield what people who choose a backend need first, in the order of `_FACTS`."""
    yield backend.reach
    yield backend.durability
    yield backend.clock
    yield seconds(backend.resolution)
    yield "yes" if backend.transactional_publish else "no"
    yield "views" if backend.sql_views else "`inspect`" if backend.inspect_messages else "counts"


def _differences(backend: str) -> list[tuple[int, str]]:
    return sorted(TABLE[backend].differences.items())


def promises(backend: str) -> str:
    """Return the promises as one backend keeps them, and the figures that go with them."""
    entry = TABLE[backend]
    lines = ["| | promise | kept |", "|--:|---|---|"]
    for number, (name, text) in PROMISES.items():
        kept = entry.differences.get(number)
        lines.append(f"| {number} | **{name}**: {_cell(text)} | {f'differs: {_cell(kept)}' if kept else 'yes'} |")
    lines += ["", "| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in _figures(entry)), ""]
    return "\n".join(lines)


def _figures(entry: Capabilities) -> Iterator[tuple[str, str]]:
    yield "server", entry.server
    yield "can be shared within a", entry.reach
    yield "what was accepted survives a crash", entry.durability
    yield "times leases and delays", f"the {entry.clock}'s clock"
    yield "visibilities and delays are rounded up to", seconds(entry.resolution)
    yield "the longest delay", seconds(entry.max_delay)
    yield "the largest encoded event", f"{entry.max_event_bytes:,} bytes"
    yield "publish in the application's transaction", "yes" if entry.transactional_publish else "no"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def options(backend: str) -> str:
    """Return the options of a backend's transports, from its manifest."""
    return options_table(MANIFESTS[backend].options)


def options_table(declared: Sequence[Option]) -> str:
    """Return a table with a line for each option; an empty text if there are none."""
    if not declared:
        return ""
    lines = ["| option | default | unit | is set in | what for |", "|---|---|---|---|---|"]
    for option in declared:
        default = "" if option.default is None else f"`{_written(option.default)}`"
        places = ", ".join(_places(option))
        lines.append(f"| `{option.name}` | {default} | {option.unit or ''} | {places} | {_cell(option.doc)} |")
    return "\n".join([*lines, ""])


def _written(value: object) -> str:
    """Return a value as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _places(option: Option) -> Iterator[str]:
    """Yield the places where people write an option."""
    if option.for_url and option.in_url:
        yield "the URL"
    if option.for_url:
        yield "`connect()`, `from_url()`"
    if option.for_client:
        yield "a transport made of your own client"


def backends_in_short() -> str:
    """Return a table for people who choose a backend: a line for each backend, and only what differs between them."""
    lines = [
        "| backend | URL | shared within a | durability | publish in your transaction | looked at with | differs in |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, backend in TABLE.items():
        urls = ", ".join(f"`{scheme}://`" for scheme in MANIFESTS[name].schemes)
        reach, durability, _, _, transaction, views = _facts(backend)
        differences = ", ".join(PROMISES[number][0] for number, _ in _differences(name)) or "-"
        lines.append(
            f"| [{name}](docs/backends/{name}.md) | {urls} | {reach} | {durability} | {transaction} | {views} "
            f"| {differences} |"
        )
    return "\n".join(["", *lines, "", ""])


def promises_in_short() -> str:
    """Return the promises of the contract, each in a sentence."""
    lines = ["| | promise | |", "|---|---|---|"]
    lines += [f"| {number} | {name} | {text} |" for number, (name, text) in PROMISES.items()]
    return "\n".join(["", *lines, "", ""])


PARTS: dict[str, Callable[..., str]] = {
    "promises-of-all": promises_of_all,
    "facts-of-all": facts_of_all,
    "promises": promises,
    "options": options,
    "layout": layout,
    "operations": operations,
    "protocol": protocol,
    "comment": comment,
}
"""The parts by their names in `{rendered} name …`."""
