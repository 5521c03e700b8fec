"""What `pyproject.toml` says of the extras agrees with the table of backends."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from fairlane.backends import MANIFESTS

ROOT = Path(__file__).parents[2]


def test_each_backend_with_a_driver_has_an_extra_of_its_name_and_all_has_them_all() -> None:
    """Guards against `MissingExtra` naming an extra that does not exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    with_driver = {name for name, entry in MANIFESTS.items() if entry.drivers}
    assert with_driver <= set(extras)
    (everything,) = extras["all"]
    named = set(re.fullmatch(r"fairlane\[(.*)\]", everything).group(1).split(","))  # type: ignore[union-attr]
    assert with_driver <= named
