"""What ARCHITECTURE.md says agrees with the code."""

from __future__ import annotations

import re
import tomllib

from tests.commands import CHECKOUT

TEXT = (CHECKOUT / "ARCHITECTURE.md").read_text()


def test_the_picture_of_the_layers_is_the_contract_of_imports() -> None:
    """Guards against a picture that is out of date."""
    tools = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]
    layers = next(found["layers"] for found in tools["importlinter"]["contracts"] if found["type"] == "layers")
    backends = {f"backends.{path.parent.name}" for path in (CHECKOUT / "src/fairlane/backends").glob("*/target.py")}
    contract = []
    for layer in reversed(layers):
        names = [name.strip().removeprefix("fairlane.") for name in layer.split("|")]
        contract.append(["backends.<name>"] if backends <= set(names) else names)
    picture = TEXT.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [re.split(r" {2,}", line)[0].split(", ") for line in picture] == contract


def test_every_path_named_is_there() -> None:
    named = re.findall(r"`((?:schema|procedures|lua|backends|src|tests)/[\w./<>*-]*)`", TEXT)
    assert named
    roots = (CHECKOUT, CHECKOUT / "src" / "fairlane")
    patterns = [name.replace("<dialect>", "*").replace("<name>", "*").replace("NNNN", "*") for name in named]
    assert [name for name in patterns if not any(any(root.glob(name)) for root in roots)] == []
