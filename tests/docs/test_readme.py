"""README.md and docs/concepts.md agree with the code: tables are rendered from it, and the demo prints what is shown.

FAIRLANE_UPDATE_GOLDEN=1 pytest tests/docs/test_readme.py writes the tables again
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable

import pytest

import fairlane
from rendered.contents import backends_in_short, promises_in_short
from tests.commands import CHECKOUT, run
from tests.docs.outputs import differs

README = CHECKOUT / "README.md"


@pytest.mark.parametrize(
    ("page", "mark", "render"),
    [("README.md", "backends", backends_in_short), ("docs/concepts.md", "promises", promises_in_short)],
)
def test_a_table_says_what_the_code_says(page: str, mark: str, render: Callable[[], str]) -> None:
    """Guards against a table with a promise that a backend no longer keeps, or without one of the backends."""
    path = CHECKOUT / page
    marked = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", re.DOTALL)
    text = path.read_text()
    if os.environ.get("FAIRLANE_UPDATE_GOLDEN"):
        text = marked.sub(lambda _: render(), text)
        path.write_text(text)
    found = marked.search(text)
    assert found is not None
    assert found.group() == render()


def session(command: str) -> str:
    """Return the output that the README shows for a command."""
    found = re.search(rf"^```text\n\$ {command}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, command
    return found[1]


def test_the_demo_shows_what_the_readme_shows() -> None:
    """`make demo` installs Fairlane and runs this command; the installation is left out here."""
    recipe = (CHECKOUT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    assert "/bin/fairlane demo $(DEMO_ARGS)" in recipe
    done = run([sys.executable, "-m", "fairlane.cli", "demo"]).ok()
    assert differs(session("make demo"), done.out) is None


def test_every_extra_and_every_transport_operation_is_named() -> None:
    text = README.read_text()
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [extra for extra in extras if extra not in ("dev", "docs") and f"[{extra}]" not in text] == []
    for operation in ("publish", "claim", "ack", "nack", "extend"):
        assert f"| `{operation}(" in text
        assert callable(getattr(fairlane.Transport, operation))


def test_every_command_shown_exists() -> None:
    pages = [README, *(CHECKOUT / "docs").rglob("*.md")]
    shown = {word for page in pages for word in re.findall(r"(?:^\$? ?|`)fairlane ([a-z]+)", page.read_text(), re.M)}
    listed = set(
        re.findall(r"^  ([a-z]+)  ", run([sys.executable, "-m", "fairlane.cli", "--help"]).ok().out, re.MULTILINE)
    )
    assert shown == listed
