"""Alembic's entry into Fairlane's migrations; `fairlane.migrate.environment` says what happens."""

from alembic import context

from fairlane.migrate.environment import run

run(context)
