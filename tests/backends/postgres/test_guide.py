"""What docs/guide/dba-postgres.md says outside of its shell sessions is true; `tests/docs` runs the sessions."""

from __future__ import annotations

import re
import shlex
import sys

from fairlane import migrate
from tests.backends.postgres.fresh import fresh_database
from tests.commands import CHECKOUT, run

GUIDE = (CHECKOUT / "docs" / "guide" / "dba-postgres.md").read_text()
OBJECTS = """
    select relname from pg_class where relnamespace = 'orders'::regnamespace and relkind in ('r', 'v', 'S')
    union select proname from pg_proc where pronamespace = 'orders'::regnamespace
"""


def test_the_guide_lists_all_that_a_migration_creates() -> None:
    with fresh_database() as database:
        migrate.upgrade(database.url(), queue="orders")
        with database.connect() as connection:
            found = {name for (name,) in connection.execute(OBJECTS)}
    listed = GUIDE.partition("**What is created.**")[2].partition("\n\n")[0]
    assert found == set(re.findall(r"`([a-z_]+)`", listed))


def test_alembic_makes_a_queue_with_the_same_roles() -> None:
    """Guards against an `alembic` line that leaves out roles which the lines above it name."""
    shown = re.search(r"^\$ (alembic .*?upgrade head)$", GUIDE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    with fresh_database() as database:
        roles = {f"orders_{role}": database.roles[role] for role in ("owner", "app", "reader")}
        text = re.sub(r"\borders_(?:owner|app|reader)\b", lambda found: roles[found[0]], shown[1])
        text = text.replace("postgresql://dba@db/app", database.url()).replace("\\\n", " ")
        run([sys.executable, "-m", *shlex.split(text)], cwd=CHECKOUT).ok()
        with database.connect() as connection:
            found = dict(connection.execute("select name, value from orders.settings where name like '%_role'"))
    assert found == {f"{role}_role": roles[f"orders_{role}"] for role in ("owner", "app", "reader")}
