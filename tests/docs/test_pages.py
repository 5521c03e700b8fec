"""Every code block and every session of the documents runs, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import CHECKOUT
from tests.docs.reading import BadPage, pages, read
from tests.docs.running import Run
from tests.docs.servers import servers


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_what_a_page_shows_is_so(path: Path, tmp_path: Path) -> None:
    if failure := what_is_not_so(path, tmp_path):
        pytest.fail(failure, pytrace=False)


def what_is_not_so(path: Path, place: Path) -> str | None:
    try:
        page = read(path)
        with servers(page, place) as (addresses, env):
            Run(page, place, addresses, env).all()
    except BadPage as bad:
        return str(bad)
    return None
