"""Blocks that are not run, but must be valid in their language."""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable, Mapping


def ini(text: str) -> None:
    """Raise if a text is not in the format that systemd, pip and others read."""
    configparser.ConfigParser().read_string(text)


CHECKED: Mapping[str, Callable[[str], object]] = {"toml": tomllib.loads, "json": json.loads, "ini": ini}
"""A function for each language, which raises if a text is not valid in it."""

NOT_RUN = frozenset({"text", "mermaid"})
