"""The build puts every template into the backends' pages, in the form that a migration or a client really uses."""

from __future__ import annotations

import re

import pytest

from fairlane.backends import MANIFESTS
from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import seconds
from fairlane.contract import CLIENT_REVISION
from fairlane.templates import bundle_root, render
from rendered.contents import PARTS, options, options_table
from rendered.templated import layout, operations
from tests.commands import CHECKOUT

SQL = ("postgres", "sqlite", "libsql", "rqlite")
INCLUDED = re.compile(
    r"(macros|publishing|finishing)\.|/views/|\.down\.|recorded\.|removed\.|held\.|stored\.|repaired\.|damaged\."
    r"|configured\.|configured_later\.|/lock\.|/roles\."
)
"""Files that are not shown separately: parts of others, old ones, and internal steps of a migration."""


def shown(backend: str) -> str:
    return layout(backend) + operations(backend)


@pytest.mark.parametrize("backend", MANIFESTS)
def test_each_backend_has_a_page_with_the_rendered_parts(backend: str) -> None:
    """Guards against a part that is pasted by hand and gets out of date."""
    text = (CHECKOUT / "docs" / "backends" / f"{backend}.md").read_text()
    wanted = {f"promises {backend}", f"options {backend}"}
    if backend in (*SQL, "redis"):
        wanted |= {f"layout {backend}", f"operations {backend}"}
    parts = re.findall(r"^```\{rendered\} (.*)$", text, re.MULTILINE)
    assert wanted <= set(parts)
    assert all(part.split()[0] in PARTS for part in parts)
    assert "```sql\ncreate table" not in text


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_every_file_of_a_dialect_is_shown(dialect: str) -> None:
    """Guards against a new operation that no page shows."""
    folders = [bundle_root() / "schema" / dialect, bundle_root() / "procedures" / dialect]
    files = [str(file.relative_to(bundle_root())) for folder in folders for file in sorted(folder.rglob("*.j2"))]
    pages = "".join(shown(backend) for backend in SQL if MANIFESTS[backend].dialect == dialect)
    assert [file for file in files if not INCLUDED.search(file) and f"`{file}`" not in pages] == []


def test_the_functions_of_redis_are_shown_as_they_are_loaded() -> None:
    """Guards against parts that look different alone than in the library."""
    library = render("lua/library.lua.j2", queue="fairlane", revision=CLIENT_REVISION)
    blocks = re.findall(r"```lua\n(.*?)\n```", shown("redis"), re.DOTALL)
    assert len(blocks) == len(list((bundle_root() / "lua").glob("*.j2"))) - 1
    assert [block for block in blocks if block not in library] == []


@pytest.mark.parametrize("backend", SQL)
def test_a_block_is_a_file_rendered_for_the_queue(backend: str) -> None:
    for block in re.findall(r"```(?:sql|postgresql)\n(.*?)\n```", shown(backend), re.DOTALL):
        assert "fairlane" in block
        assert "{{" not in block
        assert "{%" not in block


def test_an_option_says_its_default_its_unit_and_where_it_stands() -> None:
    patience = Option("timeout", seconds(0.1), 10.0, "For one request | or two.", "seconds")
    inside = Option("store", lambda name, value: value, None, "Yours.", in_url=False, for_client=True)
    *_, first, second = options_table([patience, inside]).splitlines()
    assert first == "| `timeout` | `10` | seconds | the URL, `connect()`, `from_url()` | For one request \\| or two. |"
    assert second == "| `store` |  |  | `connect()`, `from_url()`, a transport made of your own client | Yours. |"


@pytest.mark.parametrize("backend", MANIFESTS)
def test_every_option_of_a_backend_is_shown(backend: str) -> None:
    assert all(f"| `{option.name}` |" in options(backend) for option in MANIFESTS[backend].options)
