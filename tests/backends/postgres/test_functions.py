"""Each function alone: its header, body, plans and arguments are as they should be."""

from __future__ import annotations

import re

import psycopg
import pytest

from fairlane.backends.postgres.core import statements
from fairlane.backends.stored import ACK, BATCHES, NACK, OPERATIONS, Operation
from fairlane.templates import bundle_root
from tests.backends.postgres.sessions import Lane

SHOWN = ("group_content", "groups_in_line", "queue_content", "peek")
"""Functions and views for operators."""

WITHOUT_ERRORS = ("revision", "sequence_lag", "reset_line", "look_ahead", *SHOWN)
FUNCTIONS = (
    *("check_sequence", "publish", "drop_empty", "claim", "ack", "nack", "extend", "release", "purge"),
    *("publish_many", "claim_many", "ack_many", "ack_and_claim"),
    *WITHOUT_ERRORS,
)
VIEWS = ("queue_status", "group_status", "message_status")


def header(path: str) -> dict[str, str]:
    """Return the entries `name  text` of a file's header, without their continuation lines."""
    entries = {}
    for line in (bundle_root() / "procedures/postgres" / path).read_text().splitlines():
        if not line.startswith("--"):
            break
        if found := re.match(r"--   (\w+(?:, \w+)*)(?:  +\S|$)", line):
            entries.update(dict.fromkeys(found[1].split(", "), line))
    return entries


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_header_lists_the_arguments_in_order_then_what_is_returned_and_which_errors(lane: Lane, name: str) -> None:
    arguments = lane.one(
        "select coalesce((select array_agg(a.name order by a.place)"
        " from unnest(proargnames, proargmodes) with ordinality as a (name, mode, place)"
        " where a.mode is null or a.mode = 'i'), '{}')"
        " from pg_proc where pronamespace = %s::regnamespace and proname = %s",
        lane.queue,
        name,
    )
    said = list(header(f"{name}.sql.j2"))
    assert said[: len(arguments)] == arguments
    assert said[len(arguments) :] == [
        "returns",
        *([] if name in WITHOUT_ERRORS else ["errors"]),
        "locks",
    ]


@pytest.mark.parametrize("operation", [*OPERATIONS, *BATCHES], ids=lambda operation: operation.name)
def test_a_call_lists_the_arguments_that_it_sends_and_asks_for_the_columns_that_a_client_reads(
    operation: Operation,
) -> None:
    """Guards against a header, a statement and a client that do not agree."""
    sent = statements("q")[operation]
    said = [name for name in header(f"calls/{operation.name}.sql.j2") if name.startswith("p_")]
    assert said == list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sent)))
    assert "--" not in sent
    assert "returns" in header(f"calls/{operation.name}.sql.j2")


@pytest.mark.parametrize("operation", [*OPERATIONS, *BATCHES], ids=lambda operation: operation.name)
def test_a_call_answers_with_the_columns_that_a_client_reads(lane: Lane, operation: Operation) -> None:
    sent = re.sub(r"%\(\w+\)s", "null", statements(lane.queue)[operation])
    cursor = lane.watcher.connection.execute(f"select * from ({sent}) as answer limit 0")
    columns = [column.name for column in cursor.description or ()]
    assert operation in (ACK, NACK) or set(operation.columns) <= set(columns)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_header_lists_its_columns(lane: Lane, name: str) -> None:
    cursor = lane.watcher.connection.execute(f"select * from {lane.queue}.{name} limit 0")
    assert set(header(f"views/{name}.sql.j2")) == {column.name for column in cursor.description or ()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_plpgsql_check_finds_nothing(lane: Lane, name: str) -> None:
    try:
        lane.rows("create extension if not exists plpgsql_check")
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
        import os

        if os.environ.get("FAIRLANE_TEST_REQUIRE_SERVERS"):
            raise
        pytest.skip("the server has no plpgsql_check")
    except psycopg.errors.UniqueViolation:
        pass  # another test process creates it at the same time
    findings = lane.rows(
        "select c.* from pg_proc as p, lateral plpgsql_check_function(p.oid, extra_warnings => true,"
        " performance_warnings => true, security_warnings => true) as c"
        " where p.pronamespace = %s::regnamespace and p.proname = %s",
        lane.queue,
        name,
    )
    assert not findings


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_runs_with_its_owners_rights_and_a_search_path_that_ends_in_pg_temp(lane: Lane, name: str) -> None:
    definer, settings = lane.rows(
        "select prosecdef, proconfig from pg_proc where pronamespace = %s::regnamespace and proname = %s",
        lane.queue,
        name,
    )[0]
    assert definer
    assert "search_path=pg_catalog, pg_temp" in settings


def test_plans_made_on_empty_tables_use_the_floors_own_index_when_the_tables_are_large(lane: Lane) -> None:
    session, plans = lane.session(), []
    lease = None
    for floor in range(5):
        session.claim(floor)
    session.publish("g", priority=4)
    lease = session.claim()
    session.ack(lease)
    lane.rows("insert into @.messages select 'low ' || n, n, '1', null, now() from generate_series(1, 5000) as n")
    lane.rows("insert into @.groups select 'low ' || n, 0, 0, 'epoch' from generate_series(1, 5000) as n")
    lane.rows("select @.reset_line()")
    session.publish("high", priority=4)
    session.publish("high", priority=4)
    session.connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    session.rows("load 'auto_explain'")
    for name, value in {
        "log_min_duration": "0",
        "log_nested_statements": "on",
        "log_analyze": "on",
        "log_level": "notice",
    }.items():
        session.rows(f"set auto_explain.{name} = {value}")
    for floor in range(5):
        plans.clear()
        lease = session.claim(floor)
        assert lease.group_id.startswith("high" if floor else "low")
        text = "\n".join(plans)
        assert f"groups_floor_{floor} on groups g" in text
        assert not re.search(r"Seq Scan on (?!message_seq|pg_)|Bitmap|Sort|Rows Removed|Hash|Merge", text), text
        plans.clear()
        session.nack(lease)
        session.publish("high")
        lease = session.claim(floor)
        session.extend(lease)
        session.ack(lease)
        session.publish("high", priority=4)
        assert not re.search(r"Seq Scan on (?!message_seq|pg_)|Bitmap|Sort|Hash|Merge", "\n".join(plans))


def test_a_claim_reads_few_pages_however_many_groups_are_below_its_floor(lane: Lane) -> None:
    lane.rows("insert into @.messages select 'low ' || n, n, '1', null, now() from generate_series(1, 20000) as n")
    lane.rows("insert into @.groups select 'low ' || n, 0, 0, 'epoch' from generate_series(1, 20000) as n")
    session = lane.session()
    session.publish("high", priority=3)
    for floor in (0, 3):
        session.nack(session.claim(floor))  # the first call also reads what a session reads only once
        taken = []
        for _ in range(4):
            explained = "explain (analyze, buffers, format json) select * from @.claim('worker', 60, %s)"
            plan = session.one(explained, floor)[0]["Plan"]
            assert plan["Actual Rows"] == 1
            taken.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
            session.rows("update @.groups set ready_at = 'epoch', token = null where token is not null")
        assert min(taken) < 100, "one claim in 64 or so tidies up, so the least counts"


LONG = "é" * 256 + "e"
BAD = {
    "publish('', '1')": "p_group_id must be 1 to 512 bytes",
    "publish(null, '1')": "p_group_id",
    f"publish('{LONG}', '1')": "p_group_id",
    "publish('g', null)": "p_event",
    "publish('g', '1', 5)": "p_priority must be 0 to 4: 5",
    "publish('g', '1', -1)": "p_priority",
    "publish('g', '1', null)": "p_priority",
    "publish('g', '1', 0, '')": "p_dedup_id must be 1 to 128 characters",
    f"publish('g', '1', 0, repeat('d', 129))": "p_dedup_id",  # noqa: F541
    "claim('', 1)": "p_worker_id",
    "claim(null, 1)": "p_worker_id",
    f"claim('{LONG}', 1)": "p_worker_id",
    "claim('w', 0)": "p_visibility must be more than 0 and at most 43200 seconds: 0",
    "claim('w', -1)": "p_visibility",
    "claim('w', 43200.1)": "p_visibility",
    "claim('w', 'NaN')": "p_visibility",
    "claim('w', 'Infinity')": "p_visibility",
    "claim('w', null)": "p_visibility",
    "claim('w', 1, 5)": "p_min_priority",
    "claim('w', 1, -1)": "p_min_priority",
    "claim('w', 1, null)": "p_min_priority",
    "nack('g', gen_random_uuid(), -1)": "p_delay must be 0 to 31536000 seconds",
    "nack('g', gen_random_uuid(), 31536001)": "p_delay",
    "nack('g', gen_random_uuid(), 'NaN')": "p_delay",
    "nack('g', gen_random_uuid(), null)": "p_delay",
    "extend('g', gen_random_uuid(), 0)": "p_visibility",
    "extend('g', gen_random_uuid(), 'NaN')": "p_visibility",
    "extend('g', gen_random_uuid(), null)": "p_visibility",
}


@pytest.mark.parametrize("call", BAD)
def test_bad_arguments_are_refused_with_their_rule(lane: Lane, call: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        lane.rows(f"select * from @.{call}")
    assert BAD[call] in str(caught.value)
    assert lane.messages == 0


@pytest.mark.parametrize("call", ["ack('g', null)", "ack(null, null)", "nack('g', null)", "extend('g', null, 1)"])
def test_a_null_token_is_never_a_lease_even_where_the_group_has_none(lane: Lane, call: str) -> None:
    lane.watcher.publish("g")
    with pytest.raises(psycopg.Error) as caught:
        lane.rows(f"select @.{call}")
    assert caught.value.sqlstate == "QF001"


def test_the_smallest_visibility_is_rounded_up_and_the_longest_taken(lane: Lane) -> None:
    session = lane.session()
    session.publish("g")
    lease = session.claim(visibility=1e-9)
    assert lease.expires_at > lease.published_at
    span = session.one("select extract(epoch from @.extend('g', %s, 43200) - clock_timestamp())", lease.token)
    assert 43199 < span <= 43200
    session.nack(lease, 31536000)
    span = session.one("select ready_in_seconds from @.group_status")
    assert 31535999 < span <= 31536000


@pytest.mark.parametrize("lane", ["86400", "always"], indirect=True)
@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns", "Europe/Berlin"])
def test_no_time_depends_on_the_time_zone_of_the_session(lane: Lane, zone: str) -> None:
    """Within 365 days some time zones change to or from summer time, and such a day is not 24 hours long."""
    session = lane.session()
    session.rows(f"set time zone '{zone}'")
    session.publish("new")
    if lane.one("select value = 'always' from @.settings where name = 'head_start'"):
        assert lane.one("select ready_at < now() - interval '875999 hours' from @.groups")
    else:
        ahead = lane.one(
            "select extract(epoch from published_at - ready_at) from @.groups join @.messages using (group_id)"
        )
        assert 86399 < ahead <= 86400
    lease = session.claim(visibility=43200)
    assert 43199 < session.one("select extract(epoch from %s - clock_timestamp())", lease.expires_at) <= 43200
    session.nack(lease, 86400 * 200)
    span = session.one("select extract(epoch from ready_at - clock_timestamp()) from @.groups")
    assert 86400 * 200 - 1 < span <= 86400 * 200


def test_an_event_is_kept_character_by_character(lane: Lane) -> None:
    session = lane.session()
    text = '{"b" : 1.0, "a":[ ],  "b":"\\u0000", "n": 123456789012345678901234567890.50}'
    session.publish("g", text)
    assert session.one("select event::text from @.claim('w', 60)") == text
    session.publish("queried", '{"n": 123456789012345678901234567890.50}')
    number = session.one("select event ->> 'n' from @.message_status where group_id = 'queried'")
    assert number == "123456789012345678901234567890.50"


def test_a_function_ignores_objects_that_a_caller_puts_into_the_search_path(lane: Lane) -> None:
    session = lane.session()
    session.rows("create temp table groups (group_id text)")
    session.rows("create temp table messages (group_id text)")
    session.rows("create function pg_temp.clock_timestamp() returns timestamptz return timestamptz 'infinity'")
    session.rows(f"set search_path = pg_temp, {lane.queue}, pg_catalog")
    session.publish("g")
    lease = session.claim()
    assert session.one("select %s < 'infinity'", lease.expires_at)
    session.ack(lease)
    assert lane.messages == 0


def test_depths_are_counted_up_to_a_limit_and_larger_figures_are_marked_as_estimates(lane: Lane) -> None:
    lane.rows("insert into @.messages select 'g' || n, n, '1', null, now() from generate_series(1, 30000) as n")
    lane.rows("insert into @.groups select 'g' || n, 0, 0, now() from generate_series(1, 30000) as n")
    lane.rows(
        "insert into @.messages select 'deep', n, '1', null, now() - interval '1 hour'"
        " from generate_series(1, 20000) as n"
    )
    lane.rows("insert into @.groups values ('deep', 0, 0, now() - interval '1 minute')")
    (row,) = lane.rows("select depth, depth_is_capped, oldest_seconds from @.groups_in_line(1)")
    assert row[:2] == (10_000, True)
    assert row.oldest_seconds > 3599
    assert lane.rows("select depth, depth_is_capped from @.group_status where group_id = 'g7'") == [(1, False)]
    (row,) = lane.rows("select * from @.queue_status")
    assert row.is_estimate
    assert 20_000 < row.groups < 45_000
    assert row.groups == row.ready + row.in_flight + row.parked
    assert (row.in_flight, row.parked) == (0, 0)
    assert 33_000 < row.messages < 75_000
    assert row.oldest_seconds > 3599
    lane.rows("delete from @.groups where group_id <> 'deep'")
    lane.rows("delete from @.messages where group_id <> 'deep' or seq > 10000")
    (row,) = lane.rows("select * from @.queue_status")
    assert (row.groups, row.ready, row.messages, row.is_estimate) == (1, 1, 10_000, False)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_peek_shows_the_leased_message_first_whatever_its_number(lane: Lane, limit: int) -> None:
    slow, worker = lane.session(), lane.session()
    worker.publish("g", '"head"')
    slow.begin()
    slow.publish("g", '"smaller"')
    worker.publish("g", '"larger"')
    worker.ack(worker.claim())
    worker.claim()
    slow.commit()
    rows = lane.rows("select event, state, position, attempts from @.peek('g', %s)", limit)
    shown = [("larger", "in_flight", 1, 1), ("smaller", "waiting", 2, 0)]
    assert rows == shown[:limit]
    assert lane.rows("select event, state, position, attempts from @.message_status order by position") == shown


def test_a_token_is_new_even_if_the_session_repeats_its_random_numbers(lane: Lane) -> None:
    """Guards against an old token that holds again: behind a pooler another client may have called setseed()."""
    lane.rows("select @.publish('g', '1')")
    tokens = []
    for _ in range(20):
        lane.rows("select setseed(0.5)")
        tokens.append(lane.one("select token from @.claim('w', 30)"))
        lane.rows("select @.nack('g', %s)", tokens[-1])
    assert len(set(tokens)) == 20
