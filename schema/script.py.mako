"""${message}"""

from fairlane.migrate.revisions import Files, apply

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

SERVES = ${repr(down_revision)}
FILES = {
    "postgres": Files(up=(), down=()),
    "sqlite": Files(up=(), down=()),
    "redis": Files(up=(), down=()),
}


def upgrade() -> None:
    apply(FILES, "up", revision=revision, serves=SERVES)


def downgrade() -> None:
    apply(FILES, "down", revision=revision, serves=SERVES)
