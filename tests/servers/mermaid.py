"""The parser of Mermaid diagrams, from npm. It is the code that draws them in a browser, run with jsdom instead of a
browser.

It reads a diagram and fails, saying why, if a browser could not draw it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers import install as packages
from tests.servers.base import which
from tests.servers.process import Program, ServerError

PACKAGES = ("mermaid@11.17.2", "jsdom@24.1.3")
FOLDER = PACKAGES[0].replace("@", "-")
SCRIPT = """\
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";
const { window } = new JSDOM("");
Object.assign(globalThis, { window, document: window.document });
const { default: mermaid } = await import("mermaid");
if (process.argv[2] !== "--version") {
  try {
    await mermaid.parse(readFileSync(0, "utf8"));
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
"""


def find() -> Program | None:
    """Return a command that reads a diagram from its standard input."""
    command = packages.folder() / FOLDER / "check"
    return Program(command) if command.exists() and which("node") else None


def install() -> None:
    """Fetch it below `.servers/`."""
    if find() is not None:
        return
    if shutil.which("npm") is None:
        packages.install_debian(["nodejs", "npm"], "npm is missing: install Node.js and npm, which fetch mermaid")
    packages.into(FOLDER, fill)
    if find() is None:
        raise ServerError("npm has brought no mermaid")


def fill(new: Path) -> None:
    (new / "package.json").write_text('{"private": true}\n')
    npm = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefix", new)
    packages.run(*npm, *PACKAGES, cwd=new)
    (new / "check.mjs").write_text(SCRIPT)
    command = new / "check"
    command.write_text(f"#!/bin/sh\nexec node '{packages.folder() / FOLDER / 'check.mjs'}' \"$@\"\n")
    command.chmod(0o755)
