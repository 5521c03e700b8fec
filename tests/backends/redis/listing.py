"""List the functions, code and keys of a queue on a Redis server, for golden files."""

from __future__ import annotations

from typing import Any


def listing(client: Any, queue: str) -> str:
    """Return the functions with their flags, the code, the queue's keys with their types, and the fields of `meta`."""
    lines = [*_library(client, queue), "", "# keys", *_keys(client, queue)]
    return "\n".join(lines).replace(queue, "<queue>") + "\n"


def _library(client: Any, queue: str) -> list[str]:
    found = client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"fairlane_{queue}", "WITHCODE")
    if not found:
        return ["# no library"]
    library = _mapping(found[0])
    functions = [_mapping(function) for function in library["functions"]]
    rows = sorted(f"{function['name']} {' '.join(sorted(function['flags']))}".strip() for function in functions)
    return [f"# library {library['library_name']}, engine {library['engine']}", *rows, "", library["library_code"]]


def _keys(client: Any, queue: str) -> list[str]:
    keys = sorted(key.decode() for key in client.scan_iter(match=f"{{{queue}}}:*"))
    rows = [f"{key} {client.type(key).decode()}" for key in keys]
    meta = client.hgetall(f"{{{queue}}}:meta")
    fixed = (b"revision", b"serves", b"head_start")
    return rows + [f"meta {name.decode()} = {meta[name].decode()}" for name in fixed if name in meta]


def _mapping(reply: Any) -> dict[str, Any]:
    """Read a map in the form of protocol version 2: a list in which each name is followed by its value."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, set)) and all(isinstance(each, bytes) for each in value):
        return [each.decode() for each in value]
    return value
