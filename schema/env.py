"""Alembic runs this file. It calls `fairlane.migrate.environment`, which migrates the queue."""

from alembic import context

from fairlane.migrate.environment import run

run(context)
