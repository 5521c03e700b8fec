"""Check what import-linter cannot: `python -m tests.rooms`, a part of `make lint`.

- Nothing outside `fairlane/backends/` holds a backend's name in a string. It asks the manifest instead.
- A backend's package has only files whose names say their role. A name means the same role in all packages.
- The table of backends imports no driver.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fairlane.backends import MANIFESTS

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fairlane"
COMMON = frozenset({"base", "stored", "targets", "manifest", "shared"})
ROLES = frozenset(
    "__init__ address connections given wire core errors executor options target transports".split()  # noqa: SIM905
)
"""The files of a backend's package; the same name is the same role in all of them."""

OWN = {
    "memory": {"store", "groups"},
    "postgres": {"listener", "pool", "sessions", "statements", "waiters"},
    "redis": {"cluster", "listener", "streams"},
    "sqlite": {"file", "room", "transaction"},
    "mongo": {"publishing", "inspection", "operating"},
}
"""Files that only this backend needs."""


def docstrings(tree: ast.Module) -> set[int]:
    """Return the nodes of all texts that are statements: docstrings, and texts that serve as comments."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def names_outside(folder: Path = SOURCE) -> Iterator[str]:
    """Yield the places outside `backends/` that hold a backend's name."""
    for path in sorted(folder.rglob("*.py")):
        if path.is_relative_to(folder / "backends"):
            continue
        tree = ast.parse(path.read_text())
        skipped = docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in MANIFESTS and id(node) not in skipped:
                yield f"{path.relative_to(folder)}:{node.lineno}: {node.value!r}: ask the manifest, not the name"


def odd_files(folder: Path = SOURCE / "backends") -> Iterator[str]:
    """Yield the files of backends whose names say no role."""
    packages = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("__")]
    for package in packages:
        if package.name in COMMON:
            continue
        if package.name not in MANIFESTS:
            yield f"backends/{package.name}: not in the table of backends"
        known = ROLES | OWN.get(package.name, set())
        for path in sorted(package.glob("*.py")):
            if path.stem not in known:
                yield f"backends/{package.name}/{path.name}: no role is called so; there are {', '.join(sorted(known))}"


def drivers_imported() -> Iterator[str]:
    """Yield the drivers that importing the table of backends imports."""
    drivers = sorted({driver for manifest in MANIFESTS.values() for driver in manifest.drivers})
    code = f"import sys, fairlane.backends; print(*[name for name in {drivers!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for driver in done.stdout.split():
        yield f"fairlane.backends imports {driver}: a manifest imports no driver"


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = [*names_outside(), *odd_files(), *drivers_imported()]
    for line in found:
        print(line)
    print("rooms: " + ("broken" if found else "kept"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
