"""Databases and roles for one test, on the Postgres server of the test suite."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict
from urllib.parse import urlsplit

import psycopg

from tests.conftest import require_server
from tests.harness import KITS

ROLES = ("owner", "app", "reader", "stranger")


class MigrationRoles(TypedDict):
    owner_role: str
    app_role: str
    reader_role: str


class Database:
    """One database, four roles that may log in, and a superuser."""

    def __init__(self, url: str, name: str) -> None:
        self._url = urlsplit(url)
        self.name = name
        self.roles = {role: f"{name}_{role}" for role in ROLES}

    def url(self, role: str | None = None) -> str:
        """The URL of a role; without a role, of the superuser. The passwords need percent-encoding."""
        netloc = self._url.netloc
        if role is not None:
            netloc = f"{self.roles[role]}:p%25%40%2Fss@{netloc.rpartition('@')[2]}"
        return self._url._replace(netloc=netloc, path=f"/{self.name}").geturl()

    def connect(self, role: str | None = None) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(role), autocommit=True)

    def migration_roles(self) -> MigrationRoles:
        return {
            "owner_role": self.roles["owner"],
            "app_role": self.roles["app"],
            "reader_role": self.roles["reader"],
        }


@contextmanager
def fresh_database() -> Iterator[Database]:
    """Make a database with its roles, and remove both afterwards."""
    require_server(KITS["postgres"]().missing)
    url = os.environ["FAIRLANE_TEST_POSTGRES_URL"]
    database = Database(url, f"d{secrets.token_hex(6)}")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"create database {database.name}")
        for role in database.roles.values():
            admin.execute(f"create role {role} login password 'p%@/ss'")
        admin.execute(f"grant create on database {database.name} to {database.roles['owner']}")
        try:
            yield database
        finally:
            admin.execute(f"drop database {database.name} with (force)")
            for role in database.roles.values():
                admin.execute(f"drop role {role}")
