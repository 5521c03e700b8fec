"""Add operations on many messages and waiting claims for workers, and release, purge, pause, resume for operators."""

from fairlane.migrate.revisions import Files, apply

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SERVES = "0001"
POSTGRES = (
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
)
"""The functions of revision 0001. Both directions install them again, each with its own text."""

FILES = {
    "postgres": Files(
        up=(
            *POSTGRES,
            "procedures/postgres/publish_many.sql.j2",
            "procedures/postgres/claim_many.sql.j2",
            "procedures/postgres/ack_many.sql.j2",
            "procedures/postgres/ack_and_claim.sql.j2",
            "procedures/postgres/release.sql.j2",
            "procedures/postgres/purge.sql.j2",
            "procedures/postgres/pause.sql.j2",
            "procedures/postgres/resume.sql.j2",
            "procedures/postgres/next_ready.sql.j2",
            "procedures/postgres/announce.sql.j2",
            "procedures/postgres/wake.sql.j2",
            "procedures/postgres/paused_content.sql.j2",
            "schema/postgres/0002_daily_work.up.sql.j2",
            "schema/postgres/head_start.sql.j2",
            "schema/postgres/0002_tables.up.sql.j2",
            "procedures/postgres/views.sql.j2",
            "procedures/postgres/grants.sql.j2",
        ),
        down=(
            "schema/postgres/0002_daily_work.down.sql.j2",
            "schema/postgres/head_start.sql.j2",
            *POSTGRES,
            "schema/postgres/0002_tables.down.sql.j2",
            "procedures/postgres/views.sql.j2",
            "procedures/postgres/grants.sql.j2",
        ),
    ),
    "sqlite": Files(
        up=(
            "schema/sqlite/0002_daily_work.up.sql.j2",
            "procedures/sqlite/triggers.sql.j2",
            "procedures/sqlite/views.sql.j2",
        ),
        down=(
            "schema/sqlite/0002_daily_work.down.sql.j2",
            "procedures/sqlite/triggers.sql.j2",
            "procedures/sqlite/views.sql.j2",
        ),
    ),
    "redis": Files(up=("lua/library.lua.j2",), down=("schema/redis/0002_daily_work.down.lua.j2", "lua/library.lua.j2")),
}


def upgrade() -> None:
    apply(FILES, "up", revision=revision, serves=SERVES)


def downgrade() -> None:
    apply(FILES, "down", revision=revision, serves=SERVES)
