"""Server programs are fetched completely or not at all, only once, and errors have a helpful message."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.servers import ServerError, find_tool, install
from tests.servers.process import Program


def test_a_folder_appears_only_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLANE_SERVERS", str(tmp_path))
    calls = []

    def fill(new: Path) -> None:
        calls.append(new)
        (new / "half").write_text("")
        if len(calls) == 1:
            raise ServerError("the network is gone")

    with pytest.raises(ServerError, match="network"):
        install.into("thing", fill)
    assert not list(tmp_path.glob("thing*/"))
    install.into("thing", fill)
    install.into("thing", fill)
    assert len(calls) == 2, "a second run finds what the first one left"
    assert (tmp_path / "thing" / "half").exists()


def test_a_package_managers_failure_shows_what_it_said() -> None:
    with pytest.raises(ServerError, match="no such package"):
        install.run(sys.executable, "-c", "raise SystemExit('no such package')")


def test_links_of_unpacked_packages_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "java.security").write_text("settings")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "link").symlink_to("/etc/java.security")
    (tmp_path / "usr" / "outside").symlink_to("/etc/hostname")
    install.keep_links_inside(tmp_path)
    assert (tmp_path / "usr" / "link").read_text() == "settings"
    assert str((tmp_path / "usr" / "outside").readlink()) == "/etc/hostname"


def test_without_root_what_cannot_be_unpacked_is_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerError, match="install Node"):
        install.install_debian(["nodejs"], "npm is missing: install Node.js")


def test_a_program_that_fails_says_so() -> None:
    with pytest.raises(ServerError, match="oh no"):
        Program(Path(sys.executable)).run("-c", "raise SystemExit('oh no')")


def test_tools_are_found() -> None:
    for name in ("psql", "luacheck", "sqlite3", "mermaid"):
        tool = find_tool(name)
        if tool is None and not os.environ.get("FAIRLANE_TEST_REQUIRE_SERVERS"):
            pytest.skip(f"no {name} here: make servers")
        assert tool is not None
        tool.run("--version")
