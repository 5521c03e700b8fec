"""The directive `rendered`: a part of a page that comes from the code, in Markdown, at every build.

    ```{rendered} layout postgres
    ```

`contents.py` has the parts; each takes the words that follow its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from rendered import contents

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Rendered(SphinxDirective):
    """Parse what a function of `contents` returns in the place of the directive."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        part, *words = self.arguments[0].split()
        render = contents.PARTS.get(part)
        if render is None:
            raise self.error(f"nothing is called {part!r}; there are {', '.join(contents.PARTS)}")
        return self.parse_text_to_nodes(render(*words), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive. Pages are read again in every build, since Sphinx cannot see that the code has
    changed."""
    app.add_directive("rendered", Rendered)
    app.connect("env-get-outdated", lambda app, env, *_: list(env.found_docs))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
