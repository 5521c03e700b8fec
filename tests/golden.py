"""What a migration leaves behind, as a file for review: `tests/schema/golden/`."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "schema" / "golden"


def golden(name: str, found: str) -> str:
    """Return the stored text of a file; with FAIRLANE_UPDATE_GOLDEN=1 store what was found first."""
    path = FOLDER / name
    if os.environ.get("FAIRLANE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    return path.read_text()
