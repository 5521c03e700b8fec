"""Read a page of the documents: what it needs, and its code blocks in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.commands import CHECKOUT

COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
HOLDERS = frozenset({"note", "tip", "important", "warning", "caution", "admonition", "seealso", "dropdown"})
"""Directives whose content is Markdown, and may hold blocks."""

OTHER_DIRECTIVES = frozenset({"rendered", "toctree"})


class BadPage(Exception):
    """A page does not follow the convention; the message begins with the place."""


@dataclass(frozen=True)
class Block:
    """A code block; `marks` are the comments right before it."""

    language: str
    text: str
    line: int
    marks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Page:
    """A page; `needs` are words for each server, its name first."""

    path: Path
    blocks: list[Block]
    needs: list[list[str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(CHECKOUT)) if self.path.is_relative_to(CHECKOUT) else self.path.name

    def at(self, line: int) -> str:
        return f"{self.name}:{line}"


def pages() -> list[Path]:
    """The files whose blocks are run."""
    return [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def read(path: Path) -> Page:
    """Read a page.

    Raises:
        BadPage: it has something that no test can run.
    """
    page = Page(path, [])
    text = path.read_text()
    for comment in COMMENT.findall(text):
        if comment.startswith("needs:"):
            page.needs.extend(words.split() for words in comment.removeprefix("needs:").split(","))
    page.blocks.extend(_blocks(page, text, 0))
    return page


def _blocks(page: Page, text: str, above: int) -> Iterator[Block]:
    marks: frozenset[str] = frozenset()
    for token in MarkdownIt("commonmark").parse(text):
        line = above + (token.map[0] if token.map else 0)
        if token.type == "fence":
            yield from _fence(page, token, line, marks)
        elif token.type == "code_block":
            raise BadPage(f"{page.at(line + 1)}: an indented block has no language: fence it")
        if token.type == "html_block":
            marks |= set(COMMENT.findall(token.content))
        elif token.block and token.nesting >= 0:
            marks = frozenset()


def _fence(page: Page, token: Token, line: int, marks: frozenset[str]) -> Iterator[Block]:
    language = token.info.strip()
    directive = re.match(r"\{([\w-]+)\}", language)
    if directive is None:
        yield Block(language, token.content, line + 2, marks)
    elif directive[1] in HOLDERS:
        yield from _blocks(page, token.content, line + 1)
    elif directive[1] not in OTHER_DIRECTIVES:
        raise BadPage(f"{page.at(line + 1)}: no test knows the directive {directive[1]!r}")
