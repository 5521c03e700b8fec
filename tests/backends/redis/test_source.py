"""The Lua text passes the linter, and its headers match the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlane.backends.redis.wire import keys_of
from fairlane.backends.stored import BATCHES, OPERATIONS
from fairlane.contract import CLIENT_REVISION
from fairlane.templates import bundle_root, render
from tests.conftest import require_server
from tests.servers import find_tool

FOLDER = bundle_root() / "lua"
FUNCTIONS = (
    "publish",
    "claim",
    "next_ready",
    "announce",
    "ack",
    "nack",
    "extend",
    "release",
    "purge",
    "pause",
    "resume",
    "revision",
    "queue_status",
    "group_status",
    "message_status",
    "rebuild",
    "publish_many",
    "claim_many",
    "ack_many",
    "ack_and_claim",
)
REPEATED = {"publish_many": 4, "ack_many": 2}
"""Functions whose arguments are repeated, with the number of arguments for each message."""

HEADER = re.compile(r"--\[\[ ((?:(?!--\[\[).)*)\]\]\nlocal function (\w+)\(keys, args\)", re.DOTALL)
ERRORS = {
    "LEASELOST": {"lease_lost()", "ack(keys, { args[1]"},
    "BADARGUMENTS": {"bad_arguments()"},
    "NOQUEUE": {"no_queue()", "give_numbers(keys, "},
    "WRONGSEQ": {"wrong_seq(keys)", "give_numbers(keys, "},
    "AGAIN": {"call_again()"},
}
"""The codes of errors, and the texts in a function that return one."""


def library() -> str:
    return render("lua/library.lua.j2", queue="orders", revision=CLIENT_REVISION)


@pytest.fixture(params=FUNCTIONS)
def function(request: pytest.FixtureRequest) -> str:
    """The file of one function."""
    return (FOLDER / f"{request.param}.lua.j2").read_text()


def sections(source: str) -> dict[str, str]:
    """The parts of a function's header, by the word with which each part begins."""
    found = HEADER.search(source)
    assert found, "the header is followed by the function"
    parts = re.split(r"\n {5}(KEYS|ARGV|returns|errors|cost) +", "\n" + found[1])
    return {"promise": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_luacheck_finds_nothing(tmp_path: Path) -> None:
    luacheck = find_tool("luacheck")
    require_server(None if luacheck else "luacheck is missing: make servers")
    assert luacheck is not None
    path = tmp_path / "library.lua"
    first, _, rest = library().partition("\n")
    assert first == "#!lua name=fairlane_orders"
    path.write_text(rest)
    options = ("--no-color", "--std", "lua51", "--read-globals", "redis", "--max-line-length", "130")
    output = luacheck.run(*options, str(path))
    assert "0 warnings / 0 errors" in output, output


def test_every_function_has_its_file_and_is_registered(function: str) -> None:
    found = HEADER.search(function)
    assert found
    registered = re.findall(r"function_name = 'orders_(\w+)',\n  callback = guarded\((\w+),", library())
    assert (found[2], found[2]) in registered
    assert len(registered) == len(FUNCTIONS)
    parts = {path.name for path in FOLDER.iterdir() if path.is_file()} - {f"{name}.lua.j2" for name in FUNCTIONS}
    assert parts == {
        *("library.lua.j2", "keys.lua.j2", "errors.lua.j2", "clock.lua.j2"),
        *("messages.lua.j2", "pauses.lua.j2", "groups.lua.j2", "repair.lua.j2", "guard.lua.j2", "wake.lua.j2"),
    }


def test_a_header_says_what_the_function_takes(function: str) -> None:
    said = sections(function)
    assert said["KEYS"] == "as in keys.lua.j2"
    assert said["promise"]
    assert said["returns"]
    if found := REPEATED.get(re.findall(r"local function (\w+)\(keys, args\)", function)[-1]):
        assert f"#args % {found} " in function
        assert "repeated for each" in said["ARGV"]
        return
    used = {int(number) for number in re.findall(r"\bargs\[(\d)\]", function)}
    counted = re.search(r"#args [~=]= (\d)", function)
    assert counted, "the function checks how many arguments it got"
    names = re.split(r", *(?![^()]*\))", re.sub(r"\s+", " ", said["ARGV"]))
    listed = [] if names == ["none"] else [re.match(r"\w+", name.strip())[0] for name in names]  # type: ignore[index]
    assert len(listed) == int(counted[1]), listed
    assert used == set(range(1, len(listed) + 1))


def test_a_header_says_which_errors_come(function: str) -> None:
    said = sections(function)["errors"]
    body = function[HEADER.search(function).end() :]  # type: ignore[union-attr]
    for code, calls in ERRORS.items():
        assert any(call in body for call in calls) == (code in said), code


def test_functions_touch_declared_keys_only() -> None:
    """The first argument of every command is one of KEYS, except for commands that take no key."""
    calls = re.findall(r"redis\.p?call\('(\w+)'(?:, ([^,)]+))?", library())
    assert len(calls) > 30
    for command, first in calls:
        assert first.startswith("keys[") or command in ("TIME", "INFO"), (command, first)


def test_the_rights_in_the_header_are_the_commands_that_are_used() -> None:
    """`guard.lua.j2` checks these rights one by one, to name the missing one."""
    used = {command.lower() for command in re.findall(r"redis\.p?call\('(\w+)'", library())}
    listed = re.search(r"worker: .*?(?=reader:)", library(), re.DOTALL)
    waiting = re.search(r"claims that wait, .*?(?=\]\])", library(), re.DOTALL)
    assert listed
    assert waiting
    rights = set(re.findall(r"\+(\w+)", listed[0] + waiting[0]))
    assert rights - {"fcall", "fcall_ro", "blpop"} == used


def test_the_library_for_a_downgrade_has_only_the_functions_of_its_revision() -> None:
    older = render("lua/library.lua.j2", as_of="0001", queue="orders", revision="0001")
    for operation in (*OPERATIONS, *BATCHES):
        assert (f"'orders_{operation.name}'" in older) == (operation.since == "0001"), operation.name


def test_the_client_reads_its_keys_from_the_template() -> None:
    keys = keys_of("orders")
    assert keys[0] == "{orders}:meta"
    assert len(set(keys)) == len(keys) == 14
    for number, key in enumerate(keys, 1):
        assert re.search(rf"(?:= |-- ){number} -- {re.escape(key)},", library())


def test_a_large_number_is_never_written_by_concatenation() -> None:
    """`..` writes numbers with 14 digits, but times have 16. (A `seq` next to `..` is already a text of 16 digits.)"""
    for line in library().splitlines():
        joined = re.search(r"\.\. *(now|time|ready_at|expires_at|published_at)\b", line)
        assert not joined, line


def test_every_function_except_publish_works_on_a_full_server() -> None:
    flags = dict(re.findall(r"callback = guarded\((\w+), \w+\),\n  flags = \{(.*?)\}", library()))
    assert flags.pop("publish").strip() == flags.pop("publish_many").strip() == ""
    assert all("allow-oom" in flag for flag in flags.values())
    readers = {name for name, flag in flags.items() if "no-writes" in flag}
    assert readers == {"revision", "next_ready", "queue_status", "group_status", "message_status"}
