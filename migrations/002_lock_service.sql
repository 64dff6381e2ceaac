-- Waiting, shared and subtree leases, sessions, and watches.

alter table fence.leases
    drop constraint leases_mode_check,
    drop constraint leases_scope_check,
    add constraint leases_mode_check check (mode in ('exclusive', 'shared')),
    add constraint leases_scope_check check (scope in ('node', 'subtree')),
    add column session_id uuid,
    add column waited_ms integer not null default 0,
    add column adopted boolean not null default false;

comment on column fence.leases.adopted is 'was found by its request_id: whoever asked again has it, see fence.give_back';

comment on column fence.leases.expires_at is 'of a lease in a session infinity: it lasts as long as that, see fence.runs_until';

-- P1 in the schema itself: whatever a function got wrong, two exclusive leases can't run on one lock.
drop index fence.leases_running;
create unique index leases_running on fence.leases (
    lock, (case when mode = 'exclusive' then 0 else fencing_token end)) where ended_at is null;
create index leases_owner on fence.leases (owner_id) where ended_at is null;
create index leases_session on fence.leases (session_id, lock) where ended_at is null and session_id is not null;

-- The names on which a subtree lease was ever asked for, with the newest that was granted. Never deleted: it is a fence of
-- all the names below. Empty where nobody uses subtree leases, and then no write looks further.
create table fence.subtrees (
    name          fence.name primary key,
    granted_token fence.token not null default 0,
    open          boolean not null default false
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- One TTL and one heartbeat for any number of leases. settled: its leases were ended, too.
create table fence.sessions (
    session_id uuid primary key,
    owner_id   text not null,
    ttl_ms     integer not null check (ttl_ms > 0),
    created_at timestamptz not null,
    expires_at timestamptz not null,
    metadata   json,
    ended_at   timestamptz,
    end_reason text check (end_reason in ('released', 'expired')),
    settled    boolean not null default false,
    check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

create index sessions_unsettled on fence.sessions (session_id) where ended_at is not null and not settled;

-- The gateways on which somebody waits. One that was not heard of until alive_until is taken for dead, and its waiters are
-- passed over until it is heard of again.
create table fence.gateways (
    gateway_id  uuid primary key,
    alive_until timestamptz not null
) with (fillfactor = 50);

-- The line before each lock, in the order of tickets. A row belongs to the gateway whose client waits.
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

create index waiters_line on fence.waiters (lock, ticket);
create unique index waiters_request on fence.waiters (lock, request_id) where request_id is not null;
create index waiters_owner on fence.waiters (owner_id);
create index waiters_session on fence.waiters (session_id) where session_id is not null;
create index waiters_in_sessions on fence.waiters (lock) where session_id is not null;

-- The locks that somebody watches: their events are kept. All events after the id since are there.
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

-- Acquire takes what is asked for as one value now.
drop function if exists fence.acquire(text, text, integer, text, json);
