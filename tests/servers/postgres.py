"""PostgreSQL, with plpgsql_check where it is available.

`FAIRLANE_TEST_POSTGRES_URL` replaces it: the URL of a superuser in a database that the tests may fill.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.process import Program, ServerError, open_to_everybody, unprivileged_user

OLDEST = 14
USUAL_PLACES = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "opt/homebrew/opt/postgresql@*/bin")

# The compiler for large queries, and texts in other languages: three quarters of the size.
NOT_NEEDED = (
    *("usr/lib/*/libLLVM*", "usr/lib/*/libz3*", "usr/lib/postgresql/*/lib/bitcode"),
    *("usr/lib/postgresql/*/lib/llvmjit*", "usr/share/locale", "usr/share/i18n"),
)

# Tests do not need to survive a crash of the *machine*. All other settings keep their defaults.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "fsync": "off",
    "logging_collector": "off",
}


class Postgres(Server):
    name: ClassVar[str] = "postgres"
    variable: ClassVar[str] = "FAIRLANE_TEST_POSTGRES_URL"
    hint: ClassVar[str] = (
        f"install PostgreSQL >= {OLDEST} (Debian: postgresql and postgresql-15-plpgsql-check) or set "
        "FAIRLANE_TEST_POSTGRES_URL to the URL of a superuser"
    )
    stop_signal: ClassVar[int] = signal.SIGINT  # "fast shutdown": does not wait for clients

    def __init__(self, *args: str) -> None:
        super().__init__(*args)
        self.user = unprivileged_user()
        self.password = secrets.token_hex(8)

    @classmethod
    def find(cls) -> Program | None:
        return find_tool("postgres")

    @classmethod
    def install(cls) -> None:
        if (bin_folder := find_bin()) and has_plpgsql_check(bin_folder):
            return
        if not packages.has_apt():
            if bin_folder:
                packages.say(f"{bin_folder} has no extension plpgsql_check; its tests will not run")
                return
            raise ServerError(f"no PostgreSQL on this machine: {cls.hint}")
        majors = [n for n in packages.debian_majors("postgresql-([0-9]+)-plpgsql-check") if n >= OLDEST]
        if not majors:
            raise ServerError(f"apt offers no PostgreSQL with plpgsql_check: {cls.hint}")
        names = [f"postgresql-{majors[0]}", f"postgresql-{majors[0]}-plpgsql-check"]
        packages.unpack_debian("postgres", names, without=NOT_NEEDED)

    @property
    def url(self) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        self.program = reachable(self.program, self.user, self.folder)
        password = self.folder / "password"
        password.write_text(self.password)
        if self.user:
            shutil.chown(password, self.user)
        Program(self.program.path.with_name("initdb"), self.program.env).run(
            *("-D", str(self.folder / "data"), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8"),
            *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--no-sync"),
            user=self.user,
            cwd=self.folder,
        )

    def arguments(self) -> list[str]:
        settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ["-D", str(self.folder / "data"), *options, *self.args]

    def is_ready(self) -> bool:
        # The file of *this* data folder: a server that answers on the port may belong to another test.
        lines = self._pid_file()
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def close(self) -> None:
        self.stop()
        # A killed server leaves its file and a shared memory segment, which nothing else would remove.
        if len(lines := self._pid_file()) >= 7 and (ipcrm := shutil.which("ipcrm")):
            subprocess.run([ipcrm, "-m", lines[6].split()[-1]], check=False, capture_output=True)
        super().close()

    def _pid_file(self) -> list[str]:
        if self._folder is None:
            return []
        try:
            return (self._folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []


def find_tool(name: str) -> Program | None:
    """Return a program of the PostgreSQL that the tests use, such as `psql`."""
    bin_folder = find_bin()
    if bin_folder is None or not (bin_folder / name).exists():
        return None
    root = packages.folder() / "postgres"
    return Program(bin_folder / name, packages.library_path(root) if root in bin_folder.parents else {})


def find_bin() -> Path | None:
    """Return the folder of PostgreSQL's programs; a folder whose server has plpgsql_check comes first."""
    on_path = which("initdb")
    folders = [on_path.resolve().parent] if on_path else []
    for root in (Path("/"), packages.folder() / "postgres"):
        for pattern in USUAL_PLACES:
            folders += sorted(root.glob(pattern), key=lambda path: major(path), reverse=True)
    complete = [path for path in folders if (path / "initdb").exists() and (path / "postgres").exists()]
    recent = [path for path in complete if major(path) >= OLDEST]
    return next(filter(has_plpgsql_check, recent), recent[0] if recent else None)


def major(bin_folder: Path) -> int:
    """Return the server's major version, from its folder's name if that contains it."""
    if found := re.search(r"(?:postgresql[/@]|pgsql-)(\d+)", str(bin_folder)):
        return int(found[1])
    if not (bin_folder / "postgres").exists():
        return 0
    found = re.search(r"(\d+)", Program(bin_folder / "postgres").run("--version"))
    return int(found[1]) if found else 0


def has_plpgsql_check(bin_folder: Path) -> bool:
    """Return whether the extension can be installed: PostgreSQL looks for it beside its own programs."""
    above = bin_folder.resolve()
    places = [above.parent / "share/extension", above.parent / "share/postgresql/extension"]
    if above.parts[-4:-2] == ("lib", "postgresql"):  # Debian: usr/lib/postgresql/15/bin
        places.append(above.parents[3] / "share" / "postgresql" / above.parts[-2] / "extension")
    return any((place / "plpgsql_check.control").exists() for place in places)


def reachable(program: Program, user: str | None, folder: Path, name: str = "postgres") -> Program:
    """Return the program so that `user` can start it: an unpacked program may be in a folder that only root may
    enter."""
    root = packages.folder() / name
    if user is None or root not in program.path.parents or open_to_everybody(program.path):
        return program
    copy = folder / "programs"
    shutil.copytree(root, copy, symlinks=True, copy_function=link_or_copy)
    return Program(copy / program.path.relative_to(root), packages.library_path(copy))


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


find = Postgres.find
install = Postgres.install
private = Postgres.private
