-- The tables and types of fencegate. Nobody but the functions of this schema and the gateway
-- reads or writes them; applications get functions and views.

-- A name of a lock, a resource or a key: a path of UTF-8 segments, as semantics.md states it.
-- A domain is checked where a name enters a row, and not again at every update of that row.
create domain fence.name as text collate "C"
    constraint name_is_path check (
        octet_length(value) between 1 and 512
        and value !~ '[\u0001-\u001f\u007f-\u009f]'
        and value !~ '(^|/)(\.{0,2})(/|$)');

-- Tokens are JSON integers, which are exact only below 2^53.
create domain fence.token as bigint
    constraint token_is_exact check (value between 0 and 9007199254740991);

create sequence fence.tokens as bigint minvalue 1 maxvalue 9007199254740991 no cycle;

-- The database that minted last (guard/running_database.sql). When the running one differs, tokens jump (guard/jump.sql).
create table fence.database_identity (
    only_row          boolean primary key default true check (only_row),
    system_identifier bigint not null,
    timeline          integer not null,
    tokens_oid        oid not null,
    jumps             bigint not null default 0,
    jumped_at         timestamptz
);

-- Which revision of the functions under guard/ stands in this schema.
create table fence.guard_revision (
    only_row boolean primary key default true check (only_row),
    revision integer not null,
    digest   text not null
);

-- One fence per resource, never deleted. The free space in each page keeps updates on the page (HOT):
-- no index covers a column that changes.
create table fence.fences (
    resource      fence.name primary key,
    granted_token fence.token not null default 0,
    last_token    fence.token not null default 0,
    last_sequence bigint not null default 0 check (last_sequence >= 0),
    last_version  bigint not null default 0,
    open          boolean not null default false,
    last_created  boolean not null default false,
    last_digest   bytea
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.fences.granted_token is 'the newest token granted on the name';
comment on column fence.fences.open is 'whether that grant may still write';
comment on column fence.fences.last_version is 'the newest version that any record of the resource ever had';
comment on column fence.fences.last_digest is 'the content of the last accepted write if it was numbered, by which its retry is known';
comment on column fence.fences.last_created is 'whether the last accepted write created its record';

-- Leases that run, and for a while those that ended: a late holder is told why it lost.
create table fence.leases (
    lock          fence.name not null,
    fencing_token fence.token not null,
    lease_id      uuid not null,
    owner_id      text not null,
    mode          text not null default 'exclusive' check (mode = 'exclusive'),
    scope         text not null default 'node' check (scope = 'node'),
    ttl_ms        integer not null check (ttl_ms > 0),
    granted_at    timestamptz not null,
    expires_at    timestamptz not null,
    request_id    text,
    metadata      json,
    ended_at      timestamptz,
    end_reason    text check (end_reason in ('expired', 'released', 'broken')),
    end_note      text,
    primary key (lock, fencing_token),
    check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

-- P1 in the schema itself: whatever a function got wrong, two leases can't run on one lock.
create unique index leases_running on fence.leases (lock) where ended_at is null;
create unique index leases_request on fence.leases (lock, request_id) where request_id is not null;
create index leases_ended on fence.leases (ended_at) where ended_at is not null;

create table fence.records (
    resource      fence.name not null,
    key           fence.name not null,
    version       bigint not null,
    fencing_token fence.token not null,
    sequence      bigint,
    updated_at    timestamptz not null,
    content_type  text not null,
    value         bytea not null,
    primary key (resource, key)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- Policies hold for the name that is the prefix and for all below it; '' is every name.
create table fence.policies (
    prefix             text collate "C" primary key check (prefix = '' or prefix::fence.name is not null),
    rule               text not null default 'strict' check (rule in ('strict', 'same_token')),
    authority          text not null default 'builtin' check (authority in ('builtin', 'external')),
    require_lease_id   boolean not null default false,
    require_live_lease boolean not null default false,
    updated_at         timestamptz not null default clock_timestamp()
);

-- Writes that were shut out. A zombie that hammers is one row with a count: the unique key is
-- what makes two rejections the same group.
create table fence.rejections (
    id            bigint generated always as identity primary key,
    resource      text collate "C" not null,
    key           text collate "C" not null,
    code          text not null,
    reason        text not null,
    source          text not null,
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
    last_at       timestamptz not null
) with (fillfactor = 80);

comment on column fence.rejections.fencing_token is 'the token that was presented; 0 where there was none';
comment on column fence.rejections.late_ms is 'how long after its lease had ended the latest of them came, in milliseconds; null if unknown';

create unique index rejections_group on fence.rejections (resource, fencing_token, code, reason, source, address);
create index rejections_last_at on fence.rejections (last_at);

-- What guard/admit.sql and guard/change.sql answer.
create type fence.ruling as (
    verdict       text,
    reason        text,
    replayed      boolean,
    granted_token bigint,
    last_token    bigint,
    last_sequence bigint,
    last_version  bigint,
    last_created  boolean
);

create type fence.finding as (
    verdict text,
    version bigint,
    created boolean
);
