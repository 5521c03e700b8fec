"""Passwords with characters that URLs, configuration files and drivers treat specially."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from fairlane import AuthenticationFailed, connect, migrate
from fairlane.contract import CLIENT_REVISION
from tests.commands import alembic, fairlane
from tests.conftest import require_server
from tests.harness import KITS, Queues
from tests.servers import SERVERS, redis

PASSWORD = "s%e@c/r:e t#?é%%25"


def with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


@pytest.fixture
def postgres() -> Iterator[str]:
    """Return the URL of a role that has such a password and may make schemas."""
    import psycopg

    kit = KITS["postgres"]()
    require_server(kit.missing)
    url, role = kit.url("x"), f"role_{secrets.token_hex(4)}"
    database = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            psycopg.sql.SQL("create role {} login password {}").format(
                psycopg.sql.Identifier(role), psycopg.sql.Literal(PASSWORD)
            )
        )
        grant = psycopg.sql.SQL("grant create on database {} to {}")
        connection.execute(grant.format(psycopg.sql.Identifier(database), psycopg.sql.Identifier(role)))
        yield with_user(url, role, PASSWORD)
        connection.execute(psycopg.sql.SQL("drop owned by {}").format(psycopg.sql.Identifier(role)))
        connection.execute(psycopg.sql.SQL("drop role {}").format(psycopg.sql.Identifier(role)))


@pytest.fixture
def locked_redis() -> Iterator[str]:
    """Return the URL of a server that asks for such a password."""
    require_server(None if SERVERS["redis"].find() else "no redis-server on this machine")
    with redis.private("--requirepass", PASSWORD) as server:
        yield with_user(server.url, "", PASSWORD)


@pytest.mark.parametrize("server", ["postgres", "locked_redis"])
def test_any_password_works_everywhere_and_is_shown_nowhere(server: str, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(server)
    queue = Queues.fresh_name()
    shown = [alembic(url, queue, "upgrade", "head").ok(), alembic(url, queue, "current").ok()]
    assert shown[1].out == f"{CLIENT_REVISION} (head)\n"
    env = {"FAIRLANE_URL": url}
    shown += [fairlane("status", "-q", queue, env=env).ok(), fairlane("publish", "g", "1", "-q", queue, env=env).ok()]
    with connect(url, queue) as transport:
        assert transport.inspect.queue().messages == 1
    shown.append(fairlane("migrate", "base", "--yes", "-q", queue, env=env).ok())
    shown.append(fairlane("migrate", "-q", queue, env=env).ok())
    migrate.downgrade(url, queue=queue, revision="base")

    wrong = url.replace(quote(PASSWORD, safe=""), quote(PASSWORD + "x", safe=""))
    with pytest.raises(AuthenticationFailed) as caught:
        connect(wrong, queue)
    assert PASSWORD not in str(caught.value)
    for command in ("status", "migrate", "stats"):
        shown.append(fairlane(command, "-q", queue, env={"FAIRLANE_URL": wrong}))
        shown[-1].failed_in_one_line()
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert all(secret not in each.out + each.err for each in shown)
