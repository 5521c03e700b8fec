"""How Sphinx builds these pages: `make docs`, into .build/docs."""

from __future__ import annotations

import logging
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

_PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]

project = "Fairlane"
release = _PROJECT["version"]
html_title = f"Fairlane {release}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False

# the last one is our own: it inserts templates, capabilities and options of backends
extensions = ["myst_parser", "sphinxcontrib.mermaid", "rendered.directive"]
html_static_path = ["_static"]
html_css_files = ["wide.css"]
exclude_patterns = ["_ext", "_static"]
nitpicky = True

# plain fences stay readable wherever Markdown is shown, so a diagram is a fence and not a directive
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
# the browser draws the diagrams; the build fetches nothing
mermaid_output_format = "raw"

# Alembic renders scripts, and would log each of them
logging.getLogger("alembic").setLevel(logging.WARNING)
