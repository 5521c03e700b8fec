"""A migration step and its revision are one request. It is made once, even if it is lost, sent twice or comes late."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import pytest
from alembic import command as alembic_command
from alembic.config import Config

from fairlane import AuthenticationFailed, BackendUnavailable, ConfigurationError, connect, migrate
from fairlane.backends.rqlite.target import RqliteTarget
from fairlane.backends.targets import Choices
from fairlane.contract import CLIENT_REVISION
from fairlane.migrate.settings import Settings
from fairlane.templates import bundle_root, render
from tests.backends.rqlite.conftest import sent
from tests.harness import LONG, held
from tests.servers import rqlite
from tests.servers.rqlite import Cluster, Probe, Quirks

SCHEMA = "select type, name, sql from sqlite_master order by type, name"


@pytest.fixture
def probe(cluster: Cluster) -> Any:
    return Probe(cluster.urls[0], auth="worker:secret")


def target_of(cluster: Cluster, queue: str = "q", **options: Any) -> RqliteTarget:
    target = Settings(cluster.url, Choices(queue, **options)).target()
    assert isinstance(target, RqliteTarget)
    return target


def scripts(head_start: Any = None) -> Any:
    """The scripts of the first revision, as Alembic hands them to a target."""
    variables = Settings("rqlite://x", Choices("q", head_start=head_start)).variables("0001", "0001")
    names = ("schema/sqlite/0001_queue.up", "procedures/sqlite/triggers", "procedures/sqlite/views")
    return [render(f"{name}.sql.j2", **variables) for name in names]


def apply(target: Any, revision: str = "0001", found: Any = None) -> None:
    assert target.read() == found
    target.apply(scripts(), revision, serves=revision, stamp=False)


def works(cluster: Cluster, queue: str = "q") -> Any:
    with connect(cluster.url, queue) as transport:
        transport.publish("g", 1)
        transport.ack(held(transport.claim("w", LONG)))
        return transport.inspect.queue().messages == 0


def test_a_step_is_one_transaction_that_returns_no_rows(cluster: Cluster) -> None:
    migrate.upgrade(cluster.url, queue="q")
    steps = [seen for seen in cluster.seen if seen.path == "/db/execute"]
    assert len(steps) == int(CLIENT_REVISION)
    for step in steps:
        assert step.params == {"transaction": "", "redirect": ""}
        assert not any(statement.returns_rows for statement in step.statements)
        assert "alembic_version" in step.statements[-1].sql
    assert works(cluster)


def test_migrating_again_writes_nothing(cluster: Cluster, probe: Any) -> None:
    migrate.upgrade(cluster.url, queue="q")
    before = probe.query(SCHEMA).values
    cluster.forget_seen()
    migrate.upgrade(cluster.url, queue="q")
    assert sent(cluster) == 0
    assert probe.query(SCHEMA).values == before


def test_up_down_up_leaves_nothing_and_makes_the_same(cluster: Cluster, probe: Any) -> None:
    migrate.upgrade(cluster.url, queue="other")
    alone = probe.query(SCHEMA).values
    migrate.upgrade(cluster.url, queue="q")
    both = probe.query(SCHEMA).values
    migrate.downgrade(cluster.url, queue="q", revision="base")
    assert probe.query(SCHEMA).values == alone
    assert migrate.status(cluster.url, queue="q").found is None
    migrate.upgrade(cluster.url, queue="q")
    assert probe.query(SCHEMA).values == both
    assert works(cluster)


def test_no_clock_is_frozen_in_the_layout(cluster: Cluster, probe: Any) -> None:
    """Guards against `'now'` in triggers, defaults and views. rqlite would replace it by the time of the migration."""
    migrate.upgrade(cluster.url, queue="q", head_start=0)
    texts = [row[2] for row in probe.query(SCHEMA).values if row[2]]
    layout = "\n".join(texts).replace("2440587.5", "").replace("where name = 'now'", "")
    assert not re.search(r"24\d{5}\.\d{3}|'now'", layout)
    with connect(cluster.url, "q") as transport:
        transport.publish("g", 1)
        lease = held(transport.claim("w", LONG))
        (row,) = transport.inspect.groups()
        assert 50 < row.ready_in_seconds < 61
        transport.nack(lease, 0)
        assert transport.claim("w", LONG) is not None


def test_followers_have_the_same_layout_and_the_same_messages(cluster: Cluster) -> None:
    """rqlite replicates statements, not data. So each statement must have the same result on all nodes."""
    migrate.upgrade(cluster.url, queue="q")
    with connect(cluster.url, "q") as transport:
        for number in range(30):
            transport.publish(f"g{number % 7}", number)
        for number in range(12):
            lease = held(transport.claim("w", LONG))
            (transport.ack, transport.nack, lambda it: transport.extend(it, 5))[number % 3](lease)
    tables = ["q_messages", "q_groups", "q_settings", "q_alembic_version"]
    queries = [SCHEMA, *(f"select * from {table} order by 1" for table in tables)]
    probes = [Probe(url, auth="worker:secret") for url in cluster.urls]
    for query in queries:
        first, *others = [probe.query(query, level="none").values for probe in probes]
        assert first
        assert all(rows == first for rows in others)


FAULTS = {
    "the answer is lost": lambda cluster: cluster.faults.drop_answers(1, endpoint="execute"),
    "several answers are lost": lambda cluster: cluster.faults.drop_answers(3, endpoint="execute"),
    "the connection breaks first": lambda cluster: cluster.faults.refuse(2, endpoint="execute"),
    "it is applied twice": lambda cluster: cluster.faults.apply_twice(1, endpoint="execute"),
    "the leadership is lost": lambda cluster: cluster.faults.raft_error(1),
    "the leadership is lost, yet it is written": lambda cluster: cluster.faults.raft_error(1, applied=True),
    "a proxy's 502": lambda cluster: cluster.faults.reply(502, "bad gateway", endpoint="execute"),
    "another leader": lambda cluster: cluster.change_leader(2),
    "no leader for a moment": lambda cluster: cluster.lose_leader(0.3),
    "the leader is down": lambda cluster: cluster.stop_node(0),
    "reads are lost": lambda cluster: cluster.faults.drop_answers(2, endpoint="query"),
}
every_fault = pytest.mark.parametrize("fault", FAULTS)


@every_fault
def test_an_upgrade_survives_each_fault(cluster: Cluster, fault: Any) -> None:
    FAULTS[fault](cluster)
    migrate.upgrade(cluster.url, queue="q")
    assert cluster.faults.pending == 0
    assert migrate.status(cluster.url, queue="q").ready
    assert works(cluster)


@every_fault
def test_a_downgrade_survives_each_fault(cluster: Cluster, fault: Any) -> None:
    migrate.upgrade(cluster.url, queue="q")
    FAULTS[fault](cluster)
    migrate.downgrade(cluster.url, queue="q", revision="base")
    assert cluster.faults.pending == 0
    assert migrate.status(cluster.url, queue="q").found is None
    living = next(url for index, url in enumerate(cluster.urls) if index != 0)
    assert Probe(living, auth="worker:secret").query(SCHEMA).values == []


@pytest.mark.parametrize("quirk", [False, True])
def test_a_step_that_fails_in_the_middle_leaves_nothing(quirk: Any) -> None:
    """Also with rqlite up to 9.4.1, where a failing statement with RETURNING does not end the transaction."""
    quirks = Quirks(failed_returning_commits=quirk)
    with rqlite.private(nodes=3, quirks=quirks) as cluster:
        probe = Probe(cluster.urls[0])
        # a view of this name makes the last part of the step fail
        probe.execute("create view q_group_status as select 1")
        probe.execute("create table q_groups (x)")
        with pytest.raises(Exception, match="q_groups"):
            migrate.upgrade(cluster.url, queue="q")
        names = {row[1] for row in probe.query(SCHEMA).values}
        assert names == {"q_group_status", "q_groups"}
        assert migrate.status(cluster.url, queue="q").found is None
        probe.execute("drop table q_groups")
        migrate.upgrade(cluster.url, queue="q")
        assert works(cluster)


def test_eight_migrations_at_once_all_succeed(cluster: Cluster) -> None:
    """Eight targets, as in eight processes: each has read that there is no queue before the first one writes."""
    targets = [target_of(cluster) for _ in range(8)]
    assert {target.read() for target in targets} == {None}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda target: target.apply(scripts(), "0001", serves="0001", stamp=False), targets))
    assert {target.read() for target in targets} == {"0001"}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda target: target.apply([DROP], None, serves=None, stamp=False), targets))
    assert {target.read() for target in targets} == {None}
    for target in targets:
        target.close()


DROP = render("schema/sqlite/0001_queue.down.sql.j2", queue="q", dialect="rqlite")


def test_eight_processes_at_once_all_succeed(cluster: Cluster) -> None:
    code = "import sys; from fairlane import migrate; migrate.upgrade(sys.argv[1], queue='q')"
    running = [subprocess.Popen([sys.executable, "-c", code, cluster.url]) for _ in range(8)]
    assert [process.wait(60) for process in running] == [0] * 8
    assert works(cluster)


def test_a_step_that_another_migration_has_made_is_not_made_again(cluster: Cluster) -> None:
    late, quick = target_of(cluster), target_of(cluster)
    assert late.read() is None
    apply(quick)
    migrate.upgrade(cluster.url, queue="q")
    with connect(cluster.url, "q") as transport:
        transport.publish("g", "kept")
        late.apply(scripts(), "0001", serves="0001", stamp=False)
        assert held(transport.claim("w", LONG)).event == "kept"


def test_a_step_never_starts_from_another_revision_than_it_was_made_for(cluster: Cluster, probe: Any) -> None:
    """A downgrade and an upgrade run at the same time: the later one raises an error and changes nothing."""
    late, quick = target_of(cluster), target_of(cluster)
    apply(quick)
    late.read()
    quick.apply(["create table q_new (x);"], "0002", serves="0001", stamp=False)
    with pytest.raises(ConfigurationError, match="another migration has changed queue 'q' to revision 0002"):
        late.apply([DROP], None, serves=None, stamp=False)
    assert {"q_new", "q_messages"} <= {row[1] for row in probe.query(SCHEMA).values}
    assert quick.read() == "0002"
    late.read()
    late.apply(["drop table q_new;"], "0001", serves="0001", stamp=False)
    assert quick.read() == "0001"
    quick.apply([DROP], None, serves=None, stamp=False)
    assert probe.query(SCHEMA).values == []


def alembic(cluster: Cluster, command: Any, *arguments: Any, **flags: Any) -> Any:
    """Run an Alembic command, and return what it printed."""
    output = StringIO()
    config = Config(str(bundle_root() / "alembic.ini"), stdout=output)
    config.attributes["fairlane_settings"] = Settings(cluster.url, Choices("q"))
    getattr(alembic_command, command)(config, *arguments, **flags)
    return output.getvalue()


def test_every_alembic_command_works(cluster: Cluster) -> None:
    assert CLIENT_REVISION not in alembic(cluster, "current")
    alembic(cluster, "upgrade", "head")
    assert f"{CLIENT_REVISION} (head)" in alembic(cluster, "current")
    assert CLIENT_REVISION in alembic(cluster, "current", verbose=True)
    assert "<base> -> 0001" in alembic(cluster, "history")
    assert CLIENT_REVISION in alembic(cluster, "history", indicate_current=True)
    assert CLIENT_REVISION in alembic(cluster, "heads")
    assert CLIENT_REVISION in alembic(cluster, "show", CLIENT_REVISION)
    alembic(cluster, "ensure_version")
    assert works(cluster)
    alembic(cluster, "stamp", "base")
    assert CLIENT_REVISION not in alembic(cluster, "current")
    assert migrate.status(cluster.url, queue="q").found is None
    alembic(cluster, "stamp", "head")
    assert works(cluster)
    alembic(cluster, "downgrade", "-1")
    assert CLIENT_REVISION not in alembic(cluster, "current")
    alembic(cluster, "upgrade", "head")
    alembic(cluster, "downgrade", "base")


def test_a_stamp_without_a_queue_can_be_removed_completely(cluster: Cluster) -> None:
    alembic(cluster, "stamp", "head")
    assert CLIENT_REVISION in alembic(cluster, "current")
    assert migrate.status(cluster.url, queue="q").found is None
    alembic(cluster, "stamp", "base")
    alembic(cluster, "upgrade", "head")
    assert works(cluster)


def test_looking_writes_nothing(cluster: Cluster, probe: Any) -> None:
    for command in ("current", "history"):
        alembic(cluster, command)
    migrate.status(cluster.url, queue="q")
    assert sent(cluster) == 0
    assert probe.query(SCHEMA).values == []


def bodies(script: Any) -> Any:
    return [json.loads(body) for body in re.findall(r"<<'END'\n(.*?)\nEND\n", script, re.DOTALL)]


def all_of_it(probe: Any) -> Any:
    return [
        probe.query(query).values for query in (SCHEMA, "select * from q_settings", "select * from q_alembic_version")
    ]


def test_offline_makes_the_same_as_online(cluster: Cluster, probe: Any) -> None:
    """The script is what a DBA sends, by hand or with the curl command around it."""
    migrate.upgrade(cluster.url, queue="q")
    online = all_of_it(probe)
    migrate.downgrade(cluster.url, queue="q", revision="base")
    cluster.forget_seen()
    script = migrate.script(cluster.url, queue="q")
    assert cluster.seen == []
    assert "secret" not in script
    for body in bodies(script):
        assert all("error" not in result for result in probe.execute(*body, transaction=True).results)
    assert all_of_it(probe) == online
    assert works(cluster)
    for body in bodies(migrate.script(cluster.url, queue="q", revision="base")):
        assert all("error" not in result for result in probe.execute(*body, transaction=True).results)
    assert probe.query(SCHEMA).values == []


def test_the_offline_script_runs_in_a_shell(cluster: Cluster) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    cluster.change_leader(1)
    script = migrate.script(cluster.url, queue="q")
    environment = {**os.environ, "RQLITE": cluster.urls[0], "RQLITE_LOGIN": "worker:secret"}
    done = subprocess.run(["sh"], input=script, text=True, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert works(cluster)
    wrong = subprocess.run(
        ["sh"], input=script, text=True, env={**environment, "RQLITE_LOGIN": "x:y"}, capture_output=True, check=False
    )
    assert wrong.returncode != 0


def test_what_is_wrong_with_the_server_is_a_typed_error(cluster: Cluster) -> None:
    with pytest.raises(AuthenticationFailed):
        migrate.upgrade(cluster.url.replace("secret", "wrong"), queue="q")
    cluster.lose_leader(0.3)
    migrate.upgrade(cluster.url, queue="q")  # this waits until the server is ready
    cluster.faults.refuse(100)
    with pytest.raises(BackendUnavailable):
        migrate.status(cluster.url, queue="q")
