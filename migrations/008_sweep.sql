-- The sweep finds what is due by indexes that hold nothing else: idle locks, however many, cost it nothing.

-- check_at changes only when the sweep looks at the row: the index on it costs renewals and keepalives nothing.
alter table fence.leases
    add column check_at timestamptz not null default '-infinity',
    add column kept boolean not null default false;
comment on column fence.leases.check_at is 'of a lease that has not ended: when the sweep looks at it next; at most expires_at';
comment on column fence.leases.kept is 'older than the retention and still the newest of its lock: the sweep skips it until the next grant';

drop index fence.leases_ended;
create index leases_ended on fence.leases (ended_at) where ended_at is not null and not kept;
create index leases_check on fence.leases (check_at) where ended_at is null and check_at < 'infinity';
create index leases_expired on fence.leases (lock, fencing_token) where end_reason = 'expired';

alter table fence.sessions add column check_at timestamptz not null default '-infinity';
comment on column fence.sessions.check_at is 'until it is settled: when the sweep looks at it next; at most expires_at of one that has not ended';
drop index fence.sessions_unsettled;
create index sessions_check on fence.sessions (check_at) where not settled;
create index sessions_settled on fence.sessions (ended_at) where settled;

-- The parts of the sweep. One gateway at a time does each part: it locks the row (guard/sweep_turn.sql).
create table fence.sweeps (
    part            text primary key,
    swept_at        timestamptz not null default '-infinity',
    counted         bigint not null default 0,
    counted_through bigint not null default 0
) with (fillfactor = 50);
comment on column fence.sweeps.counted is 'of rejections: how many there were with an id up to counted_through, at most';
insert into fence.sweeps (part) values
    ('leases'), ('ended leases'), ('sessions'), ('rejections'), ('gateways'), ('waiting'), ('events'), ('history'), ('unused');

-- Names whose rows were made for a request that was not granted, or a write that was perhaps rejected (guard/sweep_unused.sql).
create table fence.unused (
    name     fence.name primary key,
    check_at timestamptz not null
);
create index unused_check on fence.unused (check_at);
insert into fence.unused (name, check_at)
select f.resource, '-infinity'::timestamptz from fence.fences f where f.granted_token = 0 and f.last_token = 0 and f.last_version = 0
union
select s.name, '-infinity' from fence.subtrees s where s.granted_token = 0;

drop function if exists fence.sweep(interval, interval, bigint, integer);
drop function if exists fence.sweep_sessions(interval, integer);
drop function if exists fence.sweep_waiting(interval, bigint);
drop function if exists fence.sweep_history(interval, integer);
drop function if exists fence.settle(uuid, integer);
