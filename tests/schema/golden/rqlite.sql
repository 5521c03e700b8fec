-- Written by tests/backends/sqlite/test_schema.py with FAIRLANE_UPDATE_GOLDEN=1.

-- index lane_under_test_finished_call
CREATE INDEX "lane_under_test_finished_call" on "lane_under_test_finished" (call_id)

-- index lane_under_test_groups_floor_0
CREATE INDEX "lane_under_test_groups_floor_0" on "lane_under_test_groups" (ready_at)

-- index lane_under_test_groups_floor_1
CREATE INDEX "lane_under_test_groups_floor_1" on "lane_under_test_groups" (ready_at) where priority >= 1

-- index lane_under_test_groups_floor_2
CREATE INDEX "lane_under_test_groups_floor_2" on "lane_under_test_groups" (ready_at) where priority >= 2

-- index lane_under_test_groups_floor_3
CREATE INDEX "lane_under_test_groups_floor_3" on "lane_under_test_groups" (ready_at) where priority >= 3

-- index lane_under_test_groups_floor_4
CREATE INDEX "lane_under_test_groups_floor_4" on "lane_under_test_groups" (ready_at) where priority >= 4

-- index lane_under_test_groups_sample
CREATE INDEX "lane_under_test_groups_sample" on "lane_under_test_groups" (ready_at, token, head_seq)
    where head_seq % 61 = 0

-- index lane_under_test_groups_token
CREATE UNIQUE INDEX "lane_under_test_groups_token" on "lane_under_test_groups" (token) where token is not null

-- index lane_under_test_messages_dedup
CREATE UNIQUE INDEX "lane_under_test_messages_dedup" on "lane_under_test_messages" (dedup_id)
    where dedup_id is not null

-- index lane_under_test_messages_sample
CREATE INDEX "lane_under_test_messages_sample" on "lane_under_test_messages" (seq) where seq % 61 = 0

-- table lane_under_test_finished
CREATE TABLE "lane_under_test_finished" (
    number integer primary key,
    call_id text not null,
    seq integer not null check (typeof(seq) = 'integer')
)

-- table lane_under_test_groups
CREATE TABLE "lane_under_test_groups" (
    group_id text not null primary key check (typeof(group_id) = 'text'),
    priority integer not null check (priority in (0, 1, 2, 3, 4)),
    head_seq integer not null check (typeof(head_seq) = 'integer'),
    ready_at integer not null check (typeof(ready_at) = 'integer'),
    token text,
    worker_id text,
    attempts integer not null default 0 check (typeof(attempts) = 'integer' and attempts between 0 and 1000000000000)
) without rowid

-- table lane_under_test_messages
CREATE TABLE "lane_under_test_messages" (
    group_id text not null check (typeof(group_id) = 'text' and group_id <> ''),
    seq integer not null check (typeof(seq) = 'integer' and seq > 0),
    event text not null check (typeof(event) = 'text'),
    priority integer not null default 0 check (priority in (0, 1, 2, 3, 4)),
    dedup_id text check (dedup_id is null or typeof(dedup_id) = 'text' and dedup_id <> ''),
    call_id text,
    published_at integer not null check (typeof(published_at) = 'integer'),
    primary key (group_id, seq)
) without rowid

-- table lane_under_test_paused
CREATE TABLE "lane_under_test_paused" (
    group_id text not null primary key check (typeof(group_id) = 'text'),
    since integer not null,
    kept_at integer
) without rowid

-- table lane_under_test_settings
CREATE TABLE "lane_under_test_settings" (
    name text not null primary key,
    value not null
) without rowid

-- trigger lane_under_test_done
CREATE TRIGGER "lane_under_test_done" after delete on "lane_under_test_messages"
begin
    delete from "lane_under_test_groups" where group_id = old.group_id and head_seq = old.seq
        and not exists (select 1 from "lane_under_test_messages" where group_id = old.group_id);
    update "lane_under_test_groups" set
        head_seq = (select seq from "lane_under_test_messages" where group_id = old.group_id order by seq limit 1),
        ready_at = (
            select min(now + 86399, max(now, 1 + coalesce((
                select ready_at from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
                where ready_at >= -9223372036854775808 and ready_at < now + 86400
                order by ready_at desc limit 1
            ), 0)))
            from (select (select value from "lane_under_test_settings" where name = 'now') as now)
        ),
        token = null,
        worker_id = null,
        attempts = 0
    where group_id = old.group_id and head_seq = old.seq;
end

-- trigger lane_under_test_paused_begins
CREATE TRIGGER "lane_under_test_paused_begins" after insert on "lane_under_test_paused"
begin
    update "lane_under_test_groups" set ready_at = ready_at where group_id = new.group_id;
end

-- trigger lane_under_test_paused_ends
CREATE TRIGGER "lane_under_test_paused_ends" after delete on "lane_under_test_paused"
begin
    update "lane_under_test_groups" set ready_at = (
        select case
            when old.kept_at >= now + 86400 then min(old.kept_at - old.kept_at % 86400 + 86399, max(old.kept_at - old.kept_at % 86400, 1 + coalesce((
                select ready_at from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
                where ready_at >= -9223372036854775808 and ready_at < old.kept_at - old.kept_at % 86400 + 86400
                order by ready_at desc limit 1
            ), 0)))
            else min(now + 86399, max(now, 1 + coalesce((
                select ready_at from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
                where ready_at >= -9223372036854775808 and ready_at < now + 86400
                order by ready_at desc limit 1
            ), 0)))
        end
        from (select (select value from "lane_under_test_settings" where name = 'now') as now)
    )
    where group_id = old.group_id;
end

-- trigger lane_under_test_published
CREATE TRIGGER "lane_under_test_published" after insert on "lane_under_test_messages"
begin
    update "lane_under_test_settings" set value = new.seq where name = 'last_seq';
    insert into "lane_under_test_groups" (group_id, priority, head_seq, ready_at)
    values (
        new.group_id, new.priority,
        (select seq from "lane_under_test_messages" where group_id = new.group_id order by seq limit 1),
        min(new.published_at - 1000000 + 86399, max(new.published_at - 1000000, 1 + coalesce((
            select ready_at from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
            where ready_at >= -9223372036854775808 and ready_at < new.published_at - 1000000 + 86400
            order by ready_at desc limit 1
        ), 0)))
    )
    on conflict (group_id) do nothing;
end

-- trigger lane_under_test_remembered
CREATE TRIGGER "lane_under_test_remembered" after delete on "lane_under_test_messages"
when old.call_id is not null
begin
    insert into "lane_under_test_finished" (call_id, seq) values (old.call_id, old.seq);
    delete from "lane_under_test_finished"
    where number = (select max(number) from "lane_under_test_finished") - 10000;
end

-- trigger lane_under_test_repeated
CREATE TRIGGER "lane_under_test_repeated" before insert on "lane_under_test_messages"
when exists (
    select 1 from "lane_under_test_finished" indexed by "lane_under_test_finished_call" where call_id = new.call_id
)
begin
    select raise(ignore);
end

-- view lane_under_test_group_status
CREATE VIEW "lane_under_test_group_status" as
with clock (now) as (select cast(round((julianday() - 2440587.5) * 1000000.0) as integer) * 86400)
select
    g.group_id,
    case
        when g.token is not null and coalesce((select p.kept_at from "lane_under_test_paused" as p where p.group_id = g.group_id and g.ready_at = 253370764800000000), g.ready_at) >= clock.now + 86400 then 'in_flight'
        when g.ready_at = 253370764800000000 then 'paused'
        when g.ready_at < clock.now + 86400 then 'ready'
        when g.token is not null then 'in_flight'
        else 'parked'
    end as state,
    g.priority,
    (select count(*) from (
        select 1 from "lane_under_test_messages" as m where m.group_id = g.group_id limit 10000
    )) as depth,
    (select max(0.0, (clock.now - m.published_at) / 1e6) from "lane_under_test_messages" as m
        where m.group_id = g.group_id and m.seq = g.head_seq) as oldest_seconds,
    g.worker_id,
    g.attempts,
    case
        when coalesce((select p.kept_at from "lane_under_test_paused" as p where p.group_id = g.group_id and g.ready_at = 253370764800000000), g.ready_at) < clock.now + 86400 then 0.0
        else (coalesce((select p.kept_at from "lane_under_test_paused" as p where p.group_id = g.group_id and g.ready_at = 253370764800000000), g.ready_at) - clock.now) / 1e6
    end as ready_in_seconds,
    exists (
        select 1 from "lane_under_test_messages" as m where m.group_id = g.group_id limit 1 offset 10000
    ) as depth_is_capped
from "lane_under_test_groups" as g
cross join clock
union all
select p.group_id, 'paused' as state, 0 as priority, 0 as depth, null as oldest_seconds, null as worker_id, 0 as attempts, 0.0 as ready_in_seconds, 0 as depth_is_capped
from "lane_under_test_paused" as p where p.group_id <> '' and not exists (select 1 from "lane_under_test_groups" as g where g.group_id = p.group_id)

-- view lane_under_test_message_status
CREATE VIEW "lane_under_test_message_status" as
with clock (now) as (select cast(round((julianday() - 2440587.5) * 1000000.0) as integer) * 86400)
select
    m.group_id,
    m.seq,
    case
        when m.seq = g.head_seq and g.token is not null and coalesce((select p.kept_at from "lane_under_test_paused" as p where p.group_id = g.group_id and g.ready_at = 253370764800000000), g.ready_at) >= clock.now + 86400 then 'in_flight'
        else 'waiting'
    end as state,
    row_number() over (partition by m.group_id order by m.seq) as position,
    case when m.seq = g.head_seq then g.attempts else 0 end as attempts,
    m.dedup_id,
    m.published_at,
    max(0.0, (clock.now - m.published_at) / 1e6) as age_seconds,
    m.event
from "lane_under_test_messages" as m
cross join "lane_under_test_groups" as g on g.group_id = m.group_id
cross join clock

-- view lane_under_test_queue_status
CREATE VIEW "lane_under_test_queue_status" as
with
    clock (now) as (select cast(round((julianday() - 2440587.5) * 1000000.0) as integer) * 86400),
    due (ready) as (
        select count(*) from (
            select 1 from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
            where ready_at < (select now from clock) + 86400 limit 10001
        )
    ),
    ahead (in_flight, parked) as (
        select count(token), count(*) - count(token) from (
            select token from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
            where ready_at >= (select now from clock) + 86400 and ready_at < 253370764800000000 limit 10001
        )
    ),
    waiting (messages) as (
        select count(*) from (select 1 from "lane_under_test_messages" limit 10001)
    ),
    thinned (ready, in_flight, parked) as (
        select
            coalesce(sum(ready_at < (select now from clock) + 86400), 0) * 61,
            coalesce(sum(ready_at >= (select now from clock) + 86400 and ready_at < 253370764800000000 and token is not null), 0) * 61,
            coalesce(sum(ready_at >= (select now from clock) + 86400 and ready_at < 253370764800000000 and token is null), 0) * 61
        from "lane_under_test_groups" indexed by "lane_under_test_groups_sample" where head_seq % 61 = 0
    ),
    total (ready, in_flight, parked, messages, is_estimate) as (
        select
            case when due.ready > 10000 then max(due.ready, thinned.ready) else due.ready end,
            case when ahead.in_flight + ahead.parked > 10000
                then max(ahead.in_flight, thinned.in_flight) else ahead.in_flight end,
            case when ahead.in_flight + ahead.parked > 10000
                then max(ahead.parked, thinned.parked) else ahead.parked end,
            case when waiting.messages > 10000 then max(waiting.messages, 61 * (
                select count(*) from "lane_under_test_messages" indexed by "lane_under_test_messages_sample"
                where seq % 61 = 0
            )) else waiting.messages end,
            max(due.ready, ahead.in_flight + ahead.parked, waiting.messages) > 10000
        from due cross join ahead cross join waiting cross join thinned
    ),
    held (in_flight, paused) as (
        select coalesce(sum(runs), 0), coalesce(sum(not runs), 0) from (
            select g.token is not null and coalesce((select p.kept_at from "lane_under_test_paused" as p where p.group_id = g.group_id and g.ready_at = 253370764800000000), g.ready_at) >= (select now from clock) + 86400 as runs
            from "lane_under_test_groups" as g indexed by "lane_under_test_groups_floor_0"
            where g.ready_at >= 253370764800000000 limit 10000
        )
    ),
    -- with estimates: of the first groups in line, and of the oldest message in the sample
    oldest (published_at) as (
        select min(m.published_at) from (
            select * from (
                select group_id, head_seq as seq from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
                where ready_at >= -9223372036854775808 order by ready_at
                limit (select case when is_estimate then 100 else 20000 end from total)
            )
            union all
            select * from (
                select group_id, seq from "lane_under_test_messages" indexed by "lane_under_test_messages_sample"
                where seq % 61 = 0 and seq >= -9223372036854775808 order by seq limit 1
            )
        ) as head
        cross join "lane_under_test_messages" as m on m.group_id = head.group_id and m.seq = head.seq
    )
select
    'lane_under_test' as queue,
    ready + total.in_flight + held.in_flight + parked + paused as "groups",
    ready, total.in_flight + held.in_flight as in_flight, parked, messages,
    max(0.0, (now - published_at) / 1e6) as oldest_seconds,
    is_estimate
    , paused
    , exists (select 1 from "lane_under_test_paused" where group_id = '') as is_paused
from total cross join oldest cross join held cross join clock

-- settings in lane_under_test_settings
head_start = '1'
last_seq = 0
revision = '0001'
serves = '0001'
