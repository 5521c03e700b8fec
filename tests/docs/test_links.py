"""The links of the documents lead to existing files and sections. Between pages of `docs/` the build checks them
too."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

from tests.commands import CHECKOUT
from tests.docs.reading import pages

TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
FILES = sorted({*(CHECKOUT / name for name in TOP), *pages()})


def links(path: Path) -> list[str]:
    """Return the links of a page, without those to other sites."""
    found = []
    for token in MarkdownIt("commonmark").parse(path.read_text()):
        for inline in token.children or ():
            target = inline.attrGet("href") or inline.attrGet("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                found.append(unquote(target))
    return found


def anchors(path: Path) -> set[str]:
    """Return the sections of a page, with the names that GitHub and MyST give them."""
    tokens = MarkdownIt("commonmark").parse(path.read_text())
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_every_link_leads_to_a_file_and_a_section(path: Path) -> None:
    missing = []
    for link in links(path):
        name, _, section = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_relative_to(CHECKOUT):
            missing.append(f"{link}: outside of the project")
        elif not target.exists():
            missing.append(f"{link}: no such file")
        elif section and section not in anchors(target) and "{rendered}" not in target.read_text():
            missing.append(f"{link}: no such section")
    assert missing == []
