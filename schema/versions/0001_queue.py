"""Create a queue: its tables or keys, its procedures, its views."""

from fairlane.migrate.revisions import Files, apply

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERVES = "0001"
FILES = {
    "postgres": Files(
        up=(
            "schema/postgres/0001_queue.up.sql.j2",
            "procedures/postgres/revision.sql.j2",
            "procedures/postgres/moment.sql.j2",
            "procedures/postgres/check_sequence.sql.j2",
            "procedures/postgres/sequence_lag.sql.j2",
            "procedures/postgres/publish.sql.j2",
            "procedures/postgres/drop_empty.sql.j2",
            "procedures/postgres/reset_line.sql.j2",
            "procedures/postgres/look_ahead.sql.j2",
            "procedures/postgres/claim.sql.j2",
            "procedures/postgres/ack.sql.j2",
            "procedures/postgres/nack.sql.j2",
            "procedures/postgres/extend.sql.j2",
            "procedures/postgres/group_content.sql.j2",
            "procedures/postgres/groups_in_line.sql.j2",
            "procedures/postgres/queue_content.sql.j2",
            "procedures/postgres/peek.sql.j2",
            "procedures/postgres/views.sql.j2",
            "procedures/postgres/grants.sql.j2",
        ),
        down=("schema/postgres/0001_queue.down.sql.j2",),
    ),
    "sqlite": Files(
        up=(
            "schema/sqlite/0001_queue.up.sql.j2",
            "procedures/sqlite/triggers.sql.j2",
            "procedures/sqlite/views.sql.j2",
        ),
        down=("schema/sqlite/0001_queue.down.sql.j2",),
    ),
    "redis": Files(up=("lua/library.lua.j2",), down=()),
}


def upgrade() -> None:
    apply(FILES, "up", revision=revision, serves=SERVES)


def downgrade() -> None:
    apply(FILES, "down", revision=revision, serves=SERVES)
