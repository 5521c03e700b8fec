"""Released layouts never change: a database that was migrated with an older release must equal a freshly migrated
one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.schema import superseded
from tests.schema.superseded import DIALECTS, named, revisions, texts

ROOT = Path(__file__).parents[2]

LAST_RELEASED = "0001"
"""The newest revision that is part of a release. Making a release raises it, and adds its files below."""

FROZEN = {
    "schema/postgres/0001_queue.up.sql.j2": "2c59a7184777f799f7a046b548da323763404288e85f279b45c162b69ec1ffca",
    "schema/postgres/0001_queue.down.sql.j2": "c23e559d438963c2e549eb12d0a511de2e3e0da53e60dab68a10e0bebf4bfbce",
    "schema/sqlite/0001_queue.up.sql.j2": "bda85001f02444ac5c8d6c338a0da1ffc7489eecd40a2eeb3e109485044d2649",
    "schema/sqlite/0001_queue.down.sql.j2": "d5af6325e4e02a82464dbc7be214d986693ab1f3f022919ee7fd30f49777677b",
    "schema/versions/0001_queue.py": "0d6f29701e9ba7390bdc93af07754226cff37764b68061c537906dc2df537f26",
}
"""SHA-256 of each released layout file. A line is added with a release, and never changed."""

COPIES = {
    "0001": "e5f5c098547704ede707211c1cf4039f9cb4ca74c47438b5e0974e020b7820e2",
}
"""One hash of all copies of templates of each released revision, as `tests.schema.superseded` prints it."""


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


def test_released_stored_operations_are_frozen() -> None:
    """Guards against a release whose stored operations cannot be installed again by a downgrade."""
    assert {revision: superseded.digest(revision) for revision in COPIES} == COPIES
    assert list(COPIES) == [revision for revision in revisions() if revision <= LAST_RELEASED]


@pytest.mark.parametrize("revision", COPIES)
def test_a_released_revision_uses_no_template_that_may_change(revision: str) -> None:
    """Guards against a copy that includes or imports a template of the newest revision, and against unused copies."""
    assert superseded.needed(revision) == set(superseded.copies(revision))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("revision", list(revisions())[1:])
def test_a_step_installs_all_that_it_changes_and_its_way_back_too(revision: str, dialect: str) -> None:
    """Guards against an upgraded queue that keeps an old body, and a downgraded one that keeps a new body."""
    before = list(revisions())[list(revisions()).index(revision) - 1]
    as_of = revision if revision in COPIES else None
    changed = {
        path
        for path in named(before, dialect)
        if texts(dialect, path, before, as_of=before) != texts(dialect, path, revision, as_of=as_of)
    }
    files = revisions()[revision].FILES.get(dialect)
    assert changed <= set(files.up if files else ())
    assert changed <= set(files.down if files else ())
