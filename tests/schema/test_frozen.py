"""Released layouts never change: a database that was migrated with an older release must equal a freshly migrated
one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

LAST_RELEASED = "0000"
"""The newest revision that is part of a release. Making a release raises it, and adds its files below."""

FROZEN: dict[str, str] = {}
"""SHA-256 of each released layout file. A line is added with a release, and never changed."""


def layout_files() -> dict[str, Path]:
    """Every layout and revision file that belongs to a numbered revision."""
    files = [*ROOT.glob("schema/*/[0-9]*.j2"), *ROOT.glob("schema/versions/[0-9]*.py")]
    return {str(file.relative_to(ROOT)): file for file in files}


def test_released_layouts_are_frozen() -> None:
    """Guards against an edit of DDL that existing databases have run already."""
    found = layout_files()
    assert {path: hashlib.sha256(found[path].read_bytes()).hexdigest() for path in FROZEN if path in found} == FROZEN


def test_every_released_layout_is_in_the_list() -> None:
    """Guards against a release that forgets to freeze its layouts."""
    released = {path for path in layout_files() if re.split(r"[/_]", path)[2] <= LAST_RELEASED}
    assert released == set(FROZEN)


def test_each_dialect_with_layouts_can_go_up_and_down_at_each_revision() -> None:
    """Guards against a revision that cannot be taken back."""
    names = [path for path in layout_files() if path.endswith(".j2")]
    ups = {path.removesuffix(".up.sql.j2") for path in names if path.endswith(".up.sql.j2")}
    downs = {path.removesuffix(".down.sql.j2") for path in names if path.endswith(".down.sql.j2")}
    assert ups == downs
    assert ups
