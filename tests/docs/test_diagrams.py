"""A browser can draw the Mermaid diagrams of the documents."""

from __future__ import annotations

import subprocess

import pytest

from tests.conftest import require_server
from tests.docs.reading import Block, Page, pages, read
from tests.servers import Program, find_tool


def diagrams() -> list[tuple[Page, Block]]:
    found = [read(path) for path in pages()]
    return [(page, block) for page in found for block in page.blocks if block.language == "mermaid"]


@pytest.fixture(scope="module")
def parser() -> Program:
    tool = find_tool("mermaid")
    if tool is None:
        require_server("this machine has no parser of diagrams: install Node.js and npm, and `make servers` fetches it")
    assert tool is not None
    return tool


def complaint(parser: Program, diagram: str) -> str | None:
    done = subprocess.run([parser.path], input=diagram, capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else done.stderr


@pytest.mark.parametrize(("page", "block"), diagrams(), ids=lambda value: getattr(value, "name", ""))
def test_a_diagram_can_be_drawn(parser: Program, page: Page, block: Block) -> None:
    if found := complaint(parser, block.text):
        pytest.fail(f"{page.at(block.line)}: {found}", pytrace=False)


def test_a_text_that_is_not_a_diagram_is_refused(parser: Program) -> None:
    """Guards against a parser that accepts everything."""
    assert complaint(parser, "stateDiagram-v2\n    [*] --> ready: publish\n") is None
    assert complaint(parser, "stateDiagram-v2\n    ready -- claimed\n") is not None
