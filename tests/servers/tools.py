"""Programs other than servers that tests use: `psql`, `sqlite3`, the Lua linter, the parser of Mermaid diagrams."""

from __future__ import annotations

import os
from pathlib import Path

from tests.servers import install as packages
from tests.servers import mermaid, postgres
from tests.servers.base import which
from tests.servers.process import Program, ServerError

POSTGRES_TOOLS = ("psql", "pg_dump", "pg_isready")


def find_tool(name: str) -> Program | None:
    """Return the program of this name, with the environment that it needs; `Program.run(*args)` runs it."""
    if name in POSTGRES_TOOLS and (tool := postgres.find_tool(name)):
        return tool
    if name == "mermaid":
        return mermaid.find()
    if on_path := which(name):
        return Program(on_path)
    if name == "sqlite3":
        return unpacked_sqlite3()
    return unpacked_luacheck() if name == "luacheck" else None


def install_tool(name: str) -> Program:
    """Do what `find_tool` does, but first fetch the tool if this machine does not have it."""
    if name == "luacheck" and find_tool(name) is None:
        packages.unpack_debian("luacheck", ["lua-check"])
        write_luacheck(packages.folder() / "luacheck")
    if name == "sqlite3" and find_tool(name) is None:
        packages.unpack_debian("sqlite3", ["sqlite3"])
    if name == "mermaid":
        mermaid.install()
    if tool := find_tool(name):
        return tool
    raise ServerError(f"no {name} on this machine, install it")


def unpacked_sqlite3() -> Program | None:
    root = packages.folder() / "sqlite3"
    path = root / "usr" / "bin" / "sqlite3"
    return Program(path, packages.library_path(root)) if path.exists() else None


def unpacked_luacheck() -> Program | None:
    path = packages.folder() / "luacheck" / "bin" / "luacheck"
    return Program(path) if path.exists() else None


def write_luacheck(root: Path) -> None:
    """Write a command that runs the unpacked luacheck with the Lua and the modules unpacked beside it."""
    command = root / "bin" / "luacheck"
    command.parent.mkdir(exist_ok=True)
    modules = sorted(root.glob("usr/lib/*/lua/5.1"))
    command.write_text(
        "#!/bin/sh\n"
        f"export LUA_PATH='{root}/usr/share/lua/5.1/?.lua;{root}/usr/share/lua/5.1/?/init.lua;;'\n"
        f"export LUA_CPATH='{';'.join(f'{path}/?.so' for path in modules)};;'\n"
        f"export LD_LIBRARY_PATH='{os.pathsep.join(packages.library_path(root).values())}'\n"
        "lua=$(command -v lua5.1)\n"
        f"[ -x {root}/usr/bin/lua5.1 ] && lua={root}/usr/bin/lua5.1\n"
        f'exec "$lua" {root}/usr/bin/luacheck "$@"\n'
    )
    command.chmod(0o755)
