"""In a database with queues, the application's own Alembic proposes no change of the queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from fairlane import ConfigurationError, connect, migrate
from tests.backends.postgres.fresh import fresh_database
from tests.harness import Kit
from tests.migrate.conftest import Database

pytestmark = [pytest.mark.twins("sync"), pytest.mark.backends("sqlite", "postgres")]

ENV = """
import sqlalchemy as sa
from alembic import context
from fairlane.migrate import include_object

metadata = sa.MetaData()
sa.Table("{mine}", metadata, sa.Column("id", sa.Integer, primary_key=True))

with sa.create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        include_schemas=True,
        version_table="{mine}_version",
        {filter},
    )
    with context.begin_transaction():
        context.run_migrations()
"""


class Host:
    """An application with one table and its own Alembic."""

    def __init__(self, database: Database, folder: Path, *, filtered: bool = True) -> None:
        self.mine = f"app_{database.queue}"
        self.url = database.url.replace("postgresql://", "postgresql+psycopg://")
        (folder / "versions").mkdir(parents=True)
        given = "include_object" if filtered else None
        (folder / "env.py").write_text(ENV.format(mine=self.mine, filter=f"include_object={given}"))
        (folder / "script.py.mako").write_text("${upgrades if upgrades else 'pass'}")
        self.config = Config()
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("sqlalchemy.url", self.url.replace("%", "%%"))

    def execute(self, statement: str) -> None:
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()

    def proposed(self) -> str:
        """Return what `alembic check` would change."""
        try:
            command.check(self.config)
        except CommandError as error:
            return str(error)
        return ""


@pytest.fixture
def database(arm: tuple[Kit, str], tmp_path: Path) -> Iterator[Database]:
    """A database of the test's own: Alembic reads all tables of one, and other tests drop theirs at the same time."""
    kit, _ = arm
    kit.folder = tmp_path
    with fresh_database() if kit.backend == "postgres" else nullcontext() as own:
        kit.server_url = own.url() if own else None
        yield Database(kit)


@pytest.fixture
def host(database: Database, tmp_path: Path) -> Host:
    migrate.upgrade(database.url, queue=database.queue)
    made = Host(database, tmp_path / "host")
    made.execute(f"create table {made.mine} (id integer not null primary key)")
    return made


def test_check_finds_nothing_to_do_beside_queues(database: Database, host: Host) -> None:
    with connect(database.url, database.queue) as queue:
        queue.publish("g", 1)
    migrate.upgrade(database.url, queue=f"{database.queue}_2")
    proposed = host.proposed()
    assert database.queue not in proposed
    assert "token" not in proposed, "the tables of the other queue"


def test_without_the_filter_queues_would_be_dropped(database: Database, host: Host, tmp_path: Path) -> None:
    """Guards against a filter that is no longer needed, or a test that sees no queue."""
    proposed = Host(database, tmp_path / "unfiltered", filtered=False).proposed()
    assert "remove_table" in proposed
    assert database.queue in proposed


def test_tables_of_the_application_are_still_seen(database: Database, host: Host) -> None:
    """This holds also for tables with names like a queue's: the filter looks at all tables of a queue and their
    columns."""
    names = [f"{host.mine}_settings", f"{host.mine}_messages", f"{host.mine}_groups"]
    for name in names:
        host.execute(f"create table {name} (name varchar(9) primary key, value integer)")
    proposed = host.proposed()
    for name in names:
        assert name in proposed
    assert database.queue not in proposed.replace(host.mine, "")


def test_outside_of_a_command_the_error_says_where_the_filter_belongs() -> None:
    table = sa.Table("t", sa.MetaData())
    with pytest.raises(ConfigurationError, match=r"env\.py"):
        migrate.include_object(table, "t", "table", True, None)
