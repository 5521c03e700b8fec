"""The templates rendered for a queue called `fairlane`, as Markdown: layouts and operations, file by file."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from alembic.script import ScriptDirectory
from jinja2.meta import find_undeclared_variables

from fairlane import migrate
from fairlane.backends import MANIFESTS
from fairlane.backends.targets import Choices
from fairlane.contract import CLIENT_REVISION
from fairlane.migrate.settings import Settings
from fairlane.templates import bundle_root, environment, render

QUEUE = "fairlane"
URLS: Mapping[str, str] = {
    "sqlite": "sqlite:///queue.db",
    "libsql": "libsql://localhost",
    "rqlite": "rqlite://localhost",
    "postgres": "postgresql://localhost",
    "redis": "redis://localhost",
    "mongo": "mongodb://localhost",
    "sqs": "sqs://eu-central-1/",
}
ROLES = {"owner_role": "fairlane_owner", "app_role": "fairlane_app", "reader_role": "fairlane_reader"}
FIRST = (
    *("publish", "claim", "ack", "nack", "extend"),
    *("publish_many", "claim_many", "ack_many", "ack_and_claim", "claim_next", "next_ready"),
    *("release", "purge", "pause", "resume"),
)
"""The operations that a reader looks for, in this order; the others follow by name."""

FLOORS = (0, 3)
"""A claim in the SQLite family has a text for each `min_priority`; these two show how they differ."""

PARTS = ("macros", "publishing", "finishing")
"""Files that only others use."""

ONLY = {"clock": ("rqlite",), "exists": ("libsql", "rqlite"), "finished": ("libsql", "rqlite")}
"""Files of the SQLite family that only some of its backends use."""


@dataclass(frozen=True)
class Script:
    """A rendered file."""

    path: str
    text: str
    revision: str | None = None
    notes: Sequence[str] = field(default=())

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].partition(".")[0]

    def fenced(self) -> str:
        """Return it as a block, with the name of its file above it."""
        language = "lua" if ".lua" in self.path else "postgresql" if "/postgres/" in self.path else "sql"
        above = " ".join([f"`{self.path}`", *self.notes])
        return f"{above}\n\n```{language}\n{self.text.strip()}\n```\n"


def layout(backend: str) -> str:
    """Return what a migration makes, before the procedures."""
    if backend in ("mongo", "sqs"):
        language = {"mongo": "javascript", "sqs": "shell"}[backend]
        return f"```{language}\n{migrate.script(URLS[backend], queue=QUEUE).strip()}\n```\n"
    if backend == "redis":
        return _lua("keys").fenced()
    return "\n".join(script.fenced() for script in _migrated(backend) if script.path.startswith("schema/"))


def operations(backend: str) -> str:
    """Return every stored procedure, view and statement, under a heading each."""
    scripts = _functions() if backend == "redis" else [*_procedures(backend), *_statements(backend)]
    order = {name: number for number, name in enumerate(FIRST)}
    scripts.sort(key=lambda script: (order.get(script.name, len(order)), script.name))
    parts = []
    for number, script in enumerate(scripts):
        if number == 0 or scripts[number - 1].name != script.name:
            parts.append(f"### {script.name}\n")
        parts.append(script.fenced())
    return "\n".join(parts)


def protocol(*modules: str) -> str:
    """Return the docstrings of modules, unchanged."""
    texts = (import_module(f"fairlane.backends.{module}").__doc__ or "" for module in modules)
    return "\n".join(f"```text\n{text.strip()}\n```\n" for text in texts)


def comment(path: str) -> str:
    """Return the comment that a template of Lua begins with, as it is rendered."""
    text = render(path, queue=QUEUE, revision="…")
    return f"```text\n{inspect.cleandoc(text.partition('--[[')[2].partition(']]')[0])}\n```\n"


def _settings(backend: str) -> Settings:
    return Settings(URLS[backend], Choices(QUEUE, **(ROLES if "owner_role" in MANIFESTS[backend].choices else {})))


def _migrated(backend: str) -> Iterator[Script]:
    """Yield the files of all revisions, in the order in which a migration applies them."""
    settings = _settings(backend)
    if backend == "postgres":
        path = "schema/postgres/namespace.sql.j2"
        yield Script(path, render(path, **settings.variables("", "")))
    steps = ScriptDirectory(str(bundle_root() / "schema")).walk_revisions()
    for step in reversed(list(steps)):
        module: Any = step.module
        files = module.FILES.get(MANIFESTS[backend].dialect)
        variables = settings.variables(step.revision, module.SERVES)
        for path in files.up if files else ():
            yield Script(
                path, render(path, as_of=step.revision, **variables), step.revision, (f"(revision {step.revision})",)
            )


def _procedures(backend: str) -> list[Script]:
    """Return the stored operations of the newest revision."""
    newest = {script.path: script for script in _migrated(backend)}
    return [script for path, script in newest.items() if not path.startswith("schema/")]


def _statements(backend: str) -> Iterator[Script]:
    """Yield the statements that clients send: the files that are not stored."""
    dialect = MANIFESTS[backend].dialect or ""
    stored = {script.path for script in _migrated(backend)}
    variables = {"queue": QUEUE, "dialect": backend}
    root = bundle_root() / "procedures" / dialect
    for file in (*sorted(root.glob("*.sql.j2")), *sorted(root.glob("calls/*.sql.j2"))):
        path = str(file.relative_to(bundle_root()))
        name = file.name.partition(".")[0]
        if name in PARTS or path in stored or backend not in ONLY.get(name, (backend,)):
            continue
        if "floor" in find_undeclared_variables(environment().parse(file.read_text())):
            for floor in FLOORS:
                text = render(path, **variables, floor=floor)
                yield Script(path, text, notes=(f"for `min_priority` {floor}",))
        else:
            yield Script(path, render(path, **variables))


def _functions() -> list[Script]:
    """Return the functions of Redis, and the parts that they share."""
    names = [file.name.partition(".")[0] for file in sorted((bundle_root() / "lua").glob("*.lua.j2"))]
    return [_lua(name) for name in names if name not in ("keys", "library")]


def _lua(name: str) -> Script:
    path = f"lua/{name}.lua.j2"
    return Script(path, render(path, queue=QUEUE, revision=CLIENT_REVISION))
