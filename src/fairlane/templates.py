"""Find and render the templates in `schema/`, `procedures/` and `lua/`, which define layouts and operations.

A released revision never changes. So each has its own copy of the templates that it installs, in the folder
`schema/superseded/` under its number, and migrations to this revision render the copies.

Jinja fills in names and choices that are fixed when a queue is installed. Values of calls are never rendered; they are
sent as bind parameters, KEYS and ARGV.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fairlane import contract
from fairlane.backends.stored import BATCHES, OPERATIONS, WAITS

if TYPE_CHECKING:
    import jinja2


SUPERSEDED = "schema/superseded"
"""The folder of the templates that released revisions install, with a folder for each revision."""


@cache
def bundle_root() -> Path:
    """Return the folder that contains `schema/`, `procedures/`, `lua/` and `alembic.ini`, in a wheel or a checkout."""
    package = Path(__file__).resolve().parent
    for root in (package / "_bundled", package.parent.parent):
        if (root / "schema" / "env.py").is_file():
            return root
    raise FileNotFoundError(f"no fairlane templates beside {package}: reinstall the package")


def ident(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote an SQL string."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the contract under their names in templates, as whole numbers; times are seconds."""

    max_visibility: int = int(contract.MAX_VISIBILITY)
    max_delay: int = int(contract.MAX_DELAY)
    max_head_start: int = int(contract.MAX_HEAD_START)
    max_priority: int = contract.MAX_PRIORITY
    priorities: tuple[int, ...] = tuple(range(contract.MAX_PRIORITY + 1))
    max_id_bytes: int = contract.MAX_ID_BYTES
    max_dedup_length: int = contract.MAX_DEDUP_LENGTH
    max_limit: int = contract.MAX_LIMIT
    max_batch: int = contract.MAX_BATCH


@cache
def environment(as_of: str | None = None) -> jinja2.Environment:
    """Return the Jinja environment of a revision; None: of the newest one. An undefined variable in a template fails.

    Every template can use `limits`, and what `backends.stored` has for the revision: `operations`, `batches`, `waits`.
    """
    import jinja2  # imported here, since it takes a third of the time of importing Fairlane

    root = bundle_root()
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([root] if as_of is None else [root / SUPERSEDED / as_of, root]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["ident"] = ident
    made.filters["literal"] = literal
    tables = {"operations": OPERATIONS, "batches": BATCHES, "waits": WAITS}
    made.globals["limits"] = Limits()
    for name, table in tables.items():
        made.globals[name] = [each for each in table if as_of is None or each.since <= as_of]
    return made


def render(path: str, *, as_of: str | None = None, **variables: object) -> str:
    """Render one template.

    Args:
        path: relative to the bundle, e.g. `procedures/sqlite/claim.sql.j2`.
        as_of: the revision whose text is wanted; None: the newest.
        variables: what the template uses.
    """
    return environment(as_of).get_template(path).render(**variables)


def uses(path: str, name: str, **variables: object) -> bool:
    """Return whether a template, with all that it imports, uses a variable, given all of its variables."""
    from jinja2 import UndefinedError

    try:
        render(path, as_of=None, **{key: value for key, value in variables.items() if key != name})
    except UndefinedError:
        return True
    return False


@lru_cache(maxsize=1024)
def _rendered(path: str, variables: tuple[tuple[str, object], ...]) -> str:
    return render(path, **dict(variables))  # type: ignore[arg-type]  # one of them may be `as_of`


def statement(path: str, **variables: object) -> str:
    """Render a template that clients send with every call, without its comments. The result is cached.

    Only lines that begin with `--` are removed, so that requests do not contain the header.
    """
    text = _rendered(path, tuple(sorted(variables.items())))
    return _without_comments(text)


@lru_cache(maxsize=1024)
def _without_comments(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))


def split_sqlite(script: str) -> Iterator[str]:
    """Yield the statements of an SQLite script. A trigger is one statement. Comments before statements are removed."""
    pending = ""
    for line in script.splitlines(keepends=True):
        if not pending and (not line.strip() or line.lstrip().startswith("--")):
            continue
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""
    if pending.strip():
        yield pending.strip()
