"""The runner of the documents finds what is wrong in them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.addresses import Addresses
from tests.docs.outputs import differs
from tests.docs.reading import BadPage, read
from tests.docs.running import Run

PATH = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def run(text: str, place: Path, real: dict[str, str] | None = None) -> None:
    """Run a page; blocks are written with ''' so that this file can be read."""
    path = place / "page.md"
    path.write_text(text.replace("'''", "```"))
    Run(read(path), place, Addresses(real or {}), PATH).all()


GOOD = {
    "continued Python": "'''python\nx = 1\n'''\n\n<!-- continued -->\n\n'''python\nassert x == 1\n'''\n",
    "a dataclass": "'''python\nfrom __future__ import annotations\nfrom dataclasses import dataclass\n"
    "@dataclass\nclass A:\n    x: int\n'''\n",
    "Python's output": "'''python\nimport os\nprint(os.listdir())\n'''\n\n<!-- output -->\n\n'''text\n[]\n'''\n",
    "a session": "'''console\n$ echo a; echo b >&2\na\nb\n$ echo c \\\n    d\nc d\n'''\n",
    "kept between sessions": "'''console\n$ export A=1; mkdir x; cd x\n'''\n\n"
    "'''console\n$ echo $A ${PWD##*/}\n1 x\n'''\n",
    "left behind": "'''console\n$ (sleep 0.3; echo late) &\n$ sleep 0.6; echo now\nnow\n'''\n",
    "anything": "'''console\n$ printf '1\\n2\\n3\\nx 4 y\\n'\n1\n…\nx … y\n'''\n",
    "in a note": "'''''{note}\n'''console\n$ echo a\na\n'''\n'''''\n".replace("'''''", "````"),
    "not run": "<!-- not run: it is an idea -->\n\n'''text\nfree\n'''\n\n'''mermaid\nflowchart LR\n'''\n",
    "JSON": "'''json\n{\"a\": 1}\n'''\n",
}

BAD = {
    "a program that fails": ("'''python\n1 / 0\n'''", "page.md:2: this program fails"),
    "a program that exits": ("'''python\nraise SystemExit(3)\n'''", "this program fails"),
    "the namespace of another program": ("'''python\nx = 1\n'''\n\n'''python\nx\n'''", "page.md:6: this program fails"),
    "nothing to continue": ("<!-- continued -->\n\n'''python\n'''", "no Python block"),
    "another output": ("'''python\nprint(1)\n'''\n<!-- output -->\n'''text\n2\n'''", "-2\n+1"),
    "an output of nothing": ("<!-- output -->\n\n'''text\n2\n'''", "no Python block"),
    "a command that fails": ("'''console\n$ exit 3\n'''", "exit code 3"),
    "another answer": ("'''console\n$ echo 1\n2\n'''", "-2\n+1"),
    "an answer too much": ("'''console\n$ true\n1\n'''", "-1"),
    "an answer too little": ("'''console\n$ echo 1; echo 2\n1\n'''", "+2"),
    "a session without command": ("'''console\necho 1\n'''", "begins with a command"),
    "not run, without a reason": ("<!-- not run: -->\n\n'''text\nls\n'''", "say why"),
    "no language": ("'''\nls\n'''", "no test runs a block without language"),
    "an unknown language": ("'''bash\nls\n'''", "no test runs bash"),
    "an unknown directive": ("'''{code-block} python\nx\n'''", "'code-block'"),
    "in a note": ("````{note}\n'''console\n$ echo a\nb\n'''\n````", "page.md:3"),
    "an indented block": ("Text\n\n    ls\n", "fence it"),
    "no JSON": ("'''json\n{'a'}\n'''", "this is no json"),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_a_page_that_follows_the_convention_passes(text: str, tmp_path: Path) -> None:
    run(text, tmp_path)


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD.keys())
def test_a_page_that_shows_something_wrong_fails(text: str, says: str, tmp_path: Path) -> None:
    """Guards against a check that accepts everything."""
    with pytest.raises(BadPage) as bad:
        run(text, tmp_path)
    assert says in str(bad.value)


def test_servers_are_reached_at_the_addresses_in_the_documents(tmp_path: Path) -> None:
    text = "'''console\n$ echo postgresql://dba@db/app redis://localhost:6379/0 http://localhost:80 db\n{}\n'''\n"
    real = {"postgres": "127.0.0.1:1", "redis": "127.0.0.1:2"}
    run(text.format("postgresql://dba@db/app redis://localhost:6379/0 http://localhost:80 db"), tmp_path, real)
    assert (tmp_path / "printed-1").read_text() == (
        "postgresql://dba@127.0.0.1:1/app redis://127.0.0.1:2/0 http://localhost:80 db\n"
    )


def test_what_a_page_needs_is_read_from_its_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- needs: postgres, redis --appendonly yes -->\n")
    assert read(page).needs == [["postgres"], ["redis", "--appendonly", "yes"]]


def test_a_line_of_dots_stands_for_no_line_too() -> None:
    assert differs("a\n…\nb", "a\nb") is None
    assert differs("a\n…\nb", "a\nc") is not None
