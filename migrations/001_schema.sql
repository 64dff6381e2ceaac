-- The tables and types of fencegate. Only the functions of this schema and the gateway read or write them.
-- Applications get functions and views.
--
-- A fillfactor below 100 leaves free space in each page. An update then stays on its page (HOT), unless it changes
-- an indexed column: no index covers a column that changes often.

-- Domains. A domain is checked when a value enters a row. A check of a table is parsed again by every statement that
-- updates the table.

-- A name of a lock, a resource or a key: a path of UTF-8 segments.
create domain fence.name as text collate "C"
    constraint name_is_path check (
        octet_length(value) between 1 and 512
        and value !~ '[\u0001-\u001f\u007f-\u009f]'
        and value !~ '(^|/)(\.{0,2})(/|$)');

-- Tokens are JSON integers, which are exact only below 2^53.
create domain fence.token as bigint
    constraint token_is_exact check (value between 0 and 9007199254740991);

create domain fence.sequence_number as bigint
    constraint sequence_is_not_negative check (value >= 0);

-- Tokens, and what decides a write

create sequence fence.tokens as bigint minvalue 1 maxvalue 9007199254740991 no cycle;

-- The database that issued the last token (fence.running_database). If the running one differs, tokens jump
-- (fence.jump).
create table fence.database_identity (
    only_row          boolean primary key default true check (only_row),
    system_identifier bigint not null,
    timeline          integer not null,
    tokens_oid        oid not null,
    jumps             bigint not null default 0,
    jumped_at         timestamptz
);

-- The revision of the functions under guard/ that this schema has.
create table fence.guard_revision (
    only_row boolean primary key default true check (only_row),
    revision integer not null,
    digest   text not null
);

-- One fence per resource. A fence that was granted or written is never deleted.
create table fence.fences (
    resource      fence.name primary key,
    granted_token fence.token not null default 0,
    last_token    fence.token not null default 0,
    last_sequence fence.sequence_number not null default 0,
    last_version  bigint not null default 0,
    open          boolean not null default false,
    limited       boolean not null default false,
    last_digest   bytea
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.fences.granted_token is 'the newest token granted on the name';
comment on column fence.fences.last_version is 'the newest version that any record of the resource ever had';
comment on column fence.fences.open is 'whether that grant may still write';
comment on column fence.fences.limited is
    'the newest grant may have a hold_until: fence.admit decides its writes, and no fast path';
comment on column fence.fences.last_digest is
    'the content of the last accepted write if it was numbered, which identifies its retry';

-- Empty in a database that never limited a hold: fence.write then skips this check of the fences.
create index fences_limited on fence.fences (resource) where limited;

-- The names for which a subtree lease was ever requested, with the newest token granted. It is a fence of all names
-- below, so a row that was granted is never deleted. While the table is empty, no write looks further.
create table fence.subtrees (
    name          fence.name primary key,
    granted_token fence.token not null default 0,
    open          boolean not null default false
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- A write looks up whether its token is that of an open subtree.
create index subtrees_open on fence.subtrees (granted_token) where open;

-- Names whose rows were made for a request that was not granted, or for a write that may have been rejected
-- (fence.sweep_unused).
create table fence.unused (
    name     fence.name primary key,
    check_at timestamptz not null
);

create index unused_check on fence.unused (check_at);

create table fence.records (
    resource      fence.name not null,
    key           fence.name not null,
    version       bigint not null,
    fencing_token fence.token not null,
    sequence      bigint,
    updated_at    timestamptz not null,
    content_type  text not null,
    value         bytea not null,
    created       boolean not null default false,
    primary key (resource, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.records.created is 'whether the write that stored this value made the record';

-- A policy applies to the name that is its prefix and to all names below; '' is every name.
create table fence.policies (
    prefix             text collate "C" primary key check (prefix = '' or prefix::fence.name is not null),
    rule               text not null default 'strict' check (rule in ('strict', 'same_token')),
    authority          text not null default 'builtin' check (authority in ('builtin', 'external')),
    require_lease_id   boolean not null default false,
    require_live_lease boolean not null default false,
    max_hold_ms        bigint check (max_hold_ms between 100 and 31536000000),
    updated_at         timestamptz not null default clock_timestamp()
);

comment on column fence.policies.max_hold_ms is
    'the longest time from the grant of a lease to its end, however often it is renewed; null: no limit';

-- Leases and sessions

-- Running leases, and for a while ended ones, so that a late holder can be given the reason for its loss.
create table fence.leases (
    lock             fence.name not null,
    fencing_token    fence.token not null,
    lease_id         uuid not null,
    owner_id         text not null,
    mode             text not null default 'exclusive' check (mode in ('exclusive', 'shared')),
    scope            text not null default 'node' check (scope in ('node', 'subtree')),
    ttl_ms           integer not null check (ttl_ms > 0),
    requested_ttl_ms integer,
    session_id       uuid,
    granted_at       timestamptz not null,
    waited_ms        integer not null default 0,
    expires_at       timestamptz not null,
    hold_until       timestamptz,
    check_at         timestamptz not null default '-infinity',
    request_id       text,
    adopted          boolean not null default false,
    metadata         json,
    ended_at         timestamptz,
    end_reason       text check (end_reason in ('expired', 'released', 'broken', 'max_hold')),
    end_note         text,
    kept             boolean not null default false,
    primary key (lock, fencing_token),
    check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.leases.requested_ttl_ms is 'the TTL of the acquire, which a renewal does not change';
comment on column fence.leases.expires_at is
    'infinity for a lease in a session: it lasts as long as the session, see fence.runs_until';
comment on column fence.leases.hold_until is
    'when the lease ends for good and its fence closes, however often it is renewed; null: no limit';
comment on column fence.leases.check_at is
    'until the lease has ended: when the sweep looks at it next; at most expires_at';
comment on column fence.leases.adopted is
    'an acquire with the same request_id found it, so its client has it, see fence.give_back';
comment on column fence.leases.kept is
    'older than the retention and still the newest of its lock: the sweep skips it until the next grant';

-- P1 in the schema itself: whatever a function gets wrong, two exclusive leases cannot run on one lock.
create unique index leases_running on fence.leases (
    lock, (case when mode = 'exclusive' then 0 else fencing_token end)) where ended_at is null;
create unique index leases_request on fence.leases (lock, request_id) where request_id is not null;
create index leases_owner on fence.leases (owner_id) where ended_at is null;
create index leases_session on fence.leases (session_id, lock) where ended_at is null and session_id is not null;

-- Elections are found by the leases of campaigns, which keep the leader's value in their metadata. The index holds
-- only those: granting other leases costs nothing more.
create index leases_campaigns on fence.leases (lock, fencing_token) where metadata::text like '{"value":%';

-- The sweep finds its work by indexes that hold nothing else: idle locks, however many, cost it nothing. Only the
-- sweep changes check_at, so renewals and keepalives never change the index on it.
create index leases_check on fence.leases (check_at) where ended_at is null and check_at < 'infinity';
create index leases_ended on fence.leases (ended_at) where ended_at is not null and not kept;
create index leases_expired on fence.leases (lock, fencing_token) where end_reason = 'expired';

-- The leases whose fence must still be closed at hold_until: running ones, and expired ones that may still write.
create index leases_hold on fence.leases (hold_until)
    where hold_until is not null and (ended_at is null or end_reason = 'expired');

-- One TTL and one heartbeat for any number of leases. settled: its leases have ended, too.
create table fence.sessions (
    session_id    uuid primary key,
    owner_id      text not null,
    ttl_ms        integer not null check (ttl_ms > 0),
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check_at      timestamptz not null default '-infinity',
    policies_seen bigint not null default 0,
    metadata      json,
    ended_at      timestamptz,
    end_reason    text check (end_reason in ('released', 'expired')),
    settled       boolean not null default false,
    check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.sessions.check_at is
    'until it is settled: when the sweep looks at it next; at most expires_at while it has not ended';
comment on column fence.sessions.policies_seen is
    'the policies that gave its leases their hold_until, as fence.policies_digest';

create index sessions_check on fence.sessions (check_at) where not settled;
create index sessions_settled on fence.sessions (ended_at) where settled;

-- The queue

-- The gateways that have waiters. A gateway without a heartbeat until alive_until is considered dead: its waiters are
-- skipped until its next heartbeat.
create table fence.gateways (
    gateway_id  uuid primary key,
    alive_until timestamptz not null
) with (fillfactor = 50);

-- The queue of each lock, in the order of tickets. A row belongs to the gateway whose client waits.
create table fence.waiters (
    ticket      bigint generated always as identity primary key,
    lock        fence.name not null,
    gateway_id  uuid not null,
    owner_id    text not null,
    mode        text not null check (mode in ('exclusive', 'shared')),
    scope       text not null check (scope in ('node', 'subtree')),
    ttl_ms      integer not null check (ttl_ms > 0),
    session_id  uuid,
    request_id  text,
    metadata    json,
    queued_at   timestamptz not null,
    deadline_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

create index waiters_queue on fence.waiters (lock, ticket);
create index waiters_writers on fence.waiters (lock, ticket) where mode = 'exclusive';
create unique index waiters_request on fence.waiters (lock, request_id) where request_id is not null;
create index waiters_owner on fence.waiters (owner_id);
create index waiters_session on fence.waiters (session_id) where session_id is not null;
create index waiters_in_sessions on fence.waiters (lock) where session_id is not null;

-- Watches

-- The locks that a client watches: their events are kept. All events with an id greater than since are there.
create table fence.watched (
    lock  fence.name primary key,
    since bigint not null,
    until timestamptz not null
) with (fillfactor = 50);

create table fence.events (
    id            bigint generated always as identity primary key,
    lock          text collate "C" not null,
    kind          text not null,
    at            timestamptz not null,
    owner_id      text,
    fencing_token bigint,
    mode          text,
    scope         text,
    expires_at    timestamptz,
    reason        text,
    code          text,
    key           text
);

create index events_lock on fence.events (lock, id);

-- Observation: rejections, samples of the gateways, the inventory

-- Rejected writes. The unique key says which rejections are one group: a zombie that retries in a loop is one row
-- with a count. first_at and last_at are by the clocks of the gateways. changed_at is by the database's clock: readers
-- follow the changes by it, and the sweep deletes by it.
create table fence.rejections (
    id            bigint generated always as identity primary key,
    resource      text collate "C" not null,
    key           text collate "C" not null,
    code          text not null,
    reason        text not null,
    source        text not null,
    address       text not null,
    fencing_token bigint not null,
    sequence      bigint,
    granted_token bigint not null,
    last_token    bigint not null,
    last_sequence bigint not null,
    owner_id      text,
    late_ms       bigint,
    count         bigint not null,
    first_at      timestamptz not null,
    last_at       timestamptz not null,
    changed_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 80);

comment on column fence.rejections.fencing_token is 'the token of the write; 0 where there was none';
comment on column fence.rejections.late_ms is
    'how long after the end of its lease the latest of them came, in milliseconds; null if unknown';
comment on column fence.rejections.changed_at is 'when it was last recorded, by the database''s clock';

create unique index rejections_group on fence.rejections (resource, fencing_token, code, reason, source, address);
create index rejections_changed_at on fence.rejections (changed_at, id);

-- The last report of each gateway. Totals count from the start of the gateway. A sample is the difference between a
-- report and the one before: a report that is sent twice, or whose answer was lost, counts once.
create table fence.gateway_states (
    gateway_id       uuid primary key,
    name             text not null,
    version          text not null,
    started_at       timestamptz not null,
    seen_at          timestamptz not null,
    waiting          bigint not null,
    streams          bigint not null,
    queue            bigint not null,
    connections_busy bigint not null,
    connections_max  bigint not null,
    listening        boolean not null,
    accepted         bigint not null,
    rejected         jsonb not null,
    failed           bigint not null,
    durations        bigint[] not null
) with (fillfactor = 50);

comment on column fence.gateway_states.rejected is 'a number for each code';
comment on column fence.gateway_states.durations is
    'a histogram of accepted writes by duration: a number for each bound, and one for those above all bounds';

-- What each gateway did since its sample before. Zeros at the end of durations are left out.
create table fence.samples (
    gateway_id uuid not null,
    at         timestamptz not null,
    span_ms    bigint not null,
    accepted   bigint not null,
    rejected   jsonb not null,
    failed     bigint not null,
    durations  bigint[] not null
);

comment on column fence.samples.span_ms is 'the time that it covers, which ends at "at"';

create index samples_at on fence.samples (at);

-- Numbers for the whole database. One gateway at a time counts (fence.recount).
create table fence.inventory (
    only_row       boolean primary key default true check (only_row),
    at             timestamptz,
    took_ms        bigint not null default 0,
    due_at         timestamptz not null default '-infinity',
    locks          bigint not null default 0,
    held           bigint not null default 0,
    expiring       bigint not null default 0,
    expired        bigint not null default 0,
    waiting        bigint not null default 0,
    oldest_wait_ms bigint not null default 0,
    sessions       bigint not null default 0,
    newest_token   bigint not null default 0
) with (fillfactor = 50);

comment on column fence.inventory.at is 'when it was counted; null: never yet';
comment on column fence.inventory.due_at is 'when the next count is due';

insert into fence.inventory default values;

-- The sweep

-- The parts of the sweep. One gateway at a time does each part: it locks the row (fence.sweep).
create table fence.sweeps (
    part            text primary key,
    swept_at        timestamptz not null default '-infinity',
    counted         bigint not null default 0,
    counted_through bigint not null default 0
) with (fillfactor = 50);

comment on column fence.sweeps.counted is 'of rejections: the most that there were with an id up to counted_through';

insert into fence.sweeps (part) values
    ('leases'), ('holds'), ('ended leases'), ('sessions'), ('waiting'), ('gateways'),
    ('events'), ('rejections'), ('history'), ('unused');

-- Types of arguments and results

-- The answer of fence.admit for a write token.
create type fence.ruling as (
    verdict       text,
    reason        text,
    replayed      boolean,
    granted_token bigint,
    last_token    bigint,
    last_sequence bigint,
    last_version  bigint
);

-- The answer of fence.apply_operations for an operation.
create type fence.finding as (
    verdict text,
    version bigint,
    created boolean
);

-- A step of the search for deadlocks: an owner, and the wait (its lock and ticket) by which the search found it.
-- parent is the index of the step before, 0 the start.
create type fence.wait_step as (owner_id text, lock text, ticket bigint, parent integer);

-- A lease (ticket 0) or a wait from which the search for deadlocks continues; step is the index of its owner's step.
create type fence.wait_vertex as (lock text, mode text, scope text, ticket bigint, step integer);
