"""The templates of a released revision. `python -m tests.schema.superseded 0002` copies them when 0002 is released.

A released revision renders its own copies, in `schema/superseded/NNNN/` under the paths that the templates had. So it
installs the same text for ever, and a downgrade to it installs this text again.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from alembic.script import ScriptDirectory

from fairlane.migrate.revisions import Files
from fairlane.templates import SUPERSEDED, bundle_root, environment

ROOT = Path(__file__).parents[2]

DIALECTS = {"postgres": ("postgres",), "sqlite": ("sqlite", "libsql", "rqlite"), "redis": ("redis",)}
"""The backends that use the templates of each dialect."""

OTHERS = {
    "postgres": ("schema/postgres/repaired.sql.j2", "schema/postgres/roles.sql.j2"),
    "sqlite": ("schema/sqlite/repaired.sql.j2", "schema/sqlite/damaged.sql.j2"),
}
"""Templates that migrations use at any revision, and that depend on the layout."""

NONE = Files((), ())
NUMBERED = re.compile(r"schema/\w+/\d{4}_")
"""Layout files. They are frozen as they are, so there is no copy of them."""


@cache
def revisions() -> dict[str, Any]:
    """The modules of all revisions, the oldest first."""
    steps = reversed(list(ScriptDirectory(str(bundle_root() / "schema")).walk_revisions()))
    return {step.revision: step.module for step in steps}


def named(revision: str, dialect: str) -> list[str]:
    """Return the stored operations that a queue of this revision has: what this revision and those before install."""
    paths: dict[str, None] = {}
    for number, module in revisions().items():
        if number <= revision and dialect in module.FILES:
            paths |= dict.fromkeys(path for path in module.FILES[dialect].up if not path.startswith("schema/"))
    return list(paths)


def variants(dialect: str, revision: str) -> Iterator[dict[str, object]]:
    """Yield the variables of templates for each backend of a dialect, with and without choices."""
    shared = {"queue": "lane", "revision": revision, "serves": "0001", "former": ["formerly"], "owner_role": None}
    for backend in DIALECTS[dialect]:
        for head_start, role in (("1", None), ("always", "someone")):
            choices = {"head_start": head_start, "app_role": role, "reader_role": role, "is_assumed": role is None}
            yield {"dialect": backend, **shared, **choices}


def texts(dialect: str, path: str, revision: str, *, as_of: str | None) -> list[str]:
    """Return a template as rendered for each variant."""
    made = environment(as_of).get_template(path)
    return [made.render(**variables) for variables in variants(dialect, revision)]


class _Traced(jinja2.BaseLoader):
    """Remembers which templates were loaded."""

    def __init__(self, inner: jinja2.BaseLoader) -> None:
        self._inner = inner
        self.loaded: set[str] = set()

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        self.loaded.add(template)
        return self._inner.get_source(environment, template)


def needed(revision: str) -> set[str]:
    """Return the templates of which a released revision needs copies."""
    made = environment.__wrapped__(revision)
    assert made.loader is not None
    made.loader = traced = _Traced(made.loader)
    for dialect in DIALECTS:
        layouts = [path for path in revisions()[revision].FILES.get(dialect, NONE).up if NUMBERED.match(path)]
        for path in (*named(revision, dialect), *layouts, *OTHERS.get(dialect, ())):
            for variables in variants(dialect, revision):
                made.get_template(path).render(**variables)
    return {path for path in traced.loaded if not NUMBERED.match(path)}


def folder(revision: str) -> Path:
    return ROOT / SUPERSEDED / revision


def copies(revision: str) -> dict[str, bytes]:
    """Return the copies of a revision by the paths of their originals."""
    place = folder(revision)
    return {str(file.relative_to(place)): file.read_bytes() for file in sorted(place.rglob("*.j2"))}


def digest(revision: str) -> str:
    """Return one SHA-256 for all copies of a revision."""
    found = hashlib.sha256()
    for path, text in copies(revision).items():
        found.update(f"{path}\0{len(text)}\0".encode() + text)
    return found.hexdigest()


def main() -> None:
    """Copy the templates of the newest revision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", choices=[list(revisions())[-1]], help="the newest revision, which is released now")
    revision = parser.parse_args().revision
    for path in sorted(needed(revision)):
        target = folder(revision) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    print(f'    "{revision}": "{digest(revision)}",')


if __name__ == "__main__":
    main()
