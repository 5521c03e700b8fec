-- Written by tests/backends/sqlite/test_schema.py with FAIRLANE_UPDATE_GOLDEN=1.

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

-- index lane_under_test_messages_dedup
CREATE UNIQUE INDEX "lane_under_test_messages_dedup" on "lane_under_test_messages" (dedup_id)
    where dedup_id is not null

-- table lane_under_test_alembic_version
CREATE TABLE lane_under_test_alembic_version ( version_num VARCHAR(32) NOT NULL, CONSTRAINT lane_under_test_alembic_version_pkc PRIMARY KEY (version_num) )

-- table lane_under_test_groups
CREATE TABLE "lane_under_test_groups" (
    group_id text not null primary key,
    priority integer not null,
    head_seq integer,
    ready_at integer not null check (typeof(ready_at) = 'integer'),
    token text,
    worker_id text,
    attempts integer not null default 0
) without rowid

-- table lane_under_test_messages
CREATE TABLE "lane_under_test_messages" (
    group_id text not null check (typeof(group_id) = 'text' and group_id <> ''),
    seq integer not null check (typeof(seq) = 'integer'),
    event text not null check (typeof(event) = 'text'),
    priority integer not null default 0 check (priority in (0, 1, 2, 3, 4)),
    dedup_id text check (dedup_id is null or typeof(dedup_id) = 'text' and dedup_id <> ''),
    published_at integer not null check (typeof(published_at) = 'integer'),
    primary key (group_id, seq)
) without rowid

-- table lane_under_test_settings
CREATE TABLE "lane_under_test_settings" (
    name text not null primary key,
    value not null
) without rowid

-- trigger lane_under_test_done
CREATE TRIGGER "lane_under_test_done" after delete on "lane_under_test_messages"
begin
    update "lane_under_test_groups" set
        head_seq = (select seq from "lane_under_test_messages" where group_id = old.group_id order by seq limit 1),
        ready_at = (
            select min(now + 999, max(now, 1 + coalesce((
                select ready_at from "lane_under_test_groups" indexed by "lane_under_test_groups_floor_0"
                where ready_at < now + 1000 order by ready_at desc limit 1
            ), 0)))
            from (select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000 as now)
        ),
        token = null,
        worker_id = null,
        attempts = 0
    where group_id = old.group_id and head_seq = old.seq;
    delete from "lane_under_test_groups" where group_id = old.group_id and head_seq is null;
end

-- trigger lane_under_test_published
CREATE TRIGGER "lane_under_test_published" after insert on "lane_under_test_messages"
begin
    update "lane_under_test_settings" set value = new.seq where name = 'last_seq';
    insert into "lane_under_test_groups" (group_id, priority, head_seq, ready_at)
    values (
        new.group_id, new.priority,
        (select seq from "lane_under_test_messages" where group_id = new.group_id order by seq limit 1),
        new.seq
    )
    on conflict (group_id) do nothing;
end

-- view lane_under_test_group_status
CREATE VIEW "lane_under_test_group_status" as
with clock (now) as (select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000)
select
    g.group_id,
    case
        when g.ready_at < clock.now + 1000 then 'ready'
        when g.token is not null then 'in_flight'
        else 'parked'
    end as state,
    g.priority,
    (select count(*) from "lane_under_test_messages" as m where m.group_id = g.group_id) as depth,
    (select max(0.0, (clock.now - m.published_at) / 1e6) from "lane_under_test_messages" as m
        where m.group_id = g.group_id and m.seq = g.head_seq) as oldest_seconds,
    g.worker_id,
    g.attempts,
    case
        when g.ready_at < clock.now + 1000 then 0.0
        else (g.ready_at - clock.now) / 1e6
    end as ready_in_seconds
from "lane_under_test_groups" as g
cross join clock

-- view lane_under_test_message_status
CREATE VIEW "lane_under_test_message_status" as
with clock (now) as (select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000)
select
    m.group_id,
    m.seq,
    case
        when m.seq = g.head_seq and g.token is not null and g.ready_at >= clock.now + 1000
            then 'in_flight'
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
with clock (now) as (select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000)
select
    'lane_under_test' as queue,
    count(group_id) as "groups",
    coalesce(sum(ready_at < now + 1000), 0) as ready,
    coalesce(sum(ready_at >= now + 1000 and token is not null), 0) as in_flight,
    coalesce(sum(ready_at >= now + 1000 and token is null), 0) as parked,
    (select count(*) from "lane_under_test_messages") as messages,
    max(0.0, (now - (
        select min(m.published_at) from "lane_under_test_groups" as g
        cross join "lane_under_test_messages" as m on m.group_id = g.group_id and m.seq = g.head_seq
    )) / 1e6) as oldest_seconds
from clock left join "lane_under_test_groups" on true

-- settings in lane_under_test_settings
head_start = 'always'
last_seq = 0
revision = '0001'
serves = '0001'
