"""The README keeps its word: its examples run, and its table of promises is rendered from `fairlane.capabilities`.

FAIRLANE_UPDATE_GOLDEN=1 pytest tests/unit/test_readme.py     renders it anew
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import fairlane
from fairlane.backends import ENTRIES
from rendered.contents import promises_of_all
from tests.commands import CHECKOUT, run

README = CHECKOUT / "README.md"
MARKED = re.compile(r"(?<=<!-- capabilities -->\n).*?(?=<!-- /capabilities -->)", re.DOTALL)


def test_the_readme_says_of_each_backend_what_the_code_says() -> None:
    """Guards against a promise in the README that a backend has stopped to keep, or a backend that is missing there."""
    text = README.read_text()
    if os.environ.get("FAIRLANE_UPDATE_GOLDEN"):
        text = MARKED.sub(lambda _: promises_of_all(), text)
        README.write_text(text)
    found = MARKED.search(text)
    assert found is not None
    assert found.group() == promises_of_all()


def blocks(language: str = "") -> list[str]:
    """The fenced blocks of a language; without one the plain ones."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_examples_run_as_they_are_one_after_the_other(tmp_path: Path) -> None:
    said = []
    for number, example in enumerate(blocks("python")):
        path = tmp_path / f"example_{number}.py"
        path.write_text(example)
        done = run([sys.executable, path.name], cwd=tmp_path).ok()
        assert done.err == ""
        said.append(done.out)
    assert said == [
        "order-4711 {'type': 'placed'} 1\norder-4711 {'type': 'paid'} 1\n",
        "order-4711 {'type': 'shipped'} 1\n",
    ]


def test_every_scheme_every_extra_and_every_transport_operation_is_named() -> None:
    text = README.read_text()
    backends = text.partition("## Backends")[2].partition("<!-- capabilities -->")[0]
    missing = [s for entry in ENTRIES.values() for s in entry.schemes if f"`{s}://" not in backends]
    assert missing == []
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [extra for extra in extras if extra not in ("dev", "docs") and f"[{extra}]" not in text] == []
    for operation in ("publish", "claim", "ack", "nack", "extend"):
        assert f"| `{operation}(" in text
        assert callable(getattr(fairlane.Transport, operation))


def test_every_command_shown_is_one() -> None:
    shown = set(re.findall(r"(?:^\$? ?|`)fairlane ([a-z]+)", README.read_text(), re.MULTILINE))
    listed = run([sys.executable, "-m", "fairlane.cli", "--help"]).ok().out
    assert shown <= set(re.findall(r"^  ([a-z]+)  ", listed, re.MULTILINE))
    assert shown >= {
        "migrate",
        "status",
        "stats",
        "groups",
        "peek",
        "publish",
        "claim",
        "ack",
        "nack",
        "extend",
        "demo",
    }
