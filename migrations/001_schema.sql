-- The tables and types of fencegate. Only the functions of this schema and the gateway read or write them.
-- Applications get functions and views.
--
-- Each table has a primary key: without one, a publication for all tables would refuse its updates and deletes.
--
-- A fillfactor below 100 leaves free space in each page. An update then stays on its page (HOT), unless it changes
-- an indexed column: no index covers a column that changes often.

-- Tables that every acquire, release or write changes have no checks: each statement would parse them again, which was an
-- eighth of a lease cycle. What comes in is checked once, before: by store (the gateway), and by fence.acquire, fence.guard
-- and their like. Names are checked again where they enter fence.fences; no lease, waiter or record is without a fence.
--
-- Domains. A domain is checked when a value enters a row.

-- A name of a lock, a resource or a key: a path of UTF-8 segments. Between and another condition would be written
-- differently after a dump was restored, which `fencegate check` would take for a change.
create domain fence.name as text collate "C"
    constraint name_is_path check (
        octet_length(value) >= 1 and octet_length(value) <= 512
        and value !~ '[\u0001-\u001f\u007f-\u009f]'
        and value !~ '(^|/)(\.{0,2})(/|$)');

-- Tokens are JSON integers, which are exact only below 2^53.
create domain fence.token as bigint
    constraint token_is_exact check (value between 0 and 9007199254740991);

create domain fence.sequence_number as bigint
    constraint sequence_is_not_negative check (value >= 0);

-- Tokens, and what decides a write

create sequence fence.tokens as bigint minvalue 1 maxvalue 9007199254740991 no cycle;

-- The mark of the last jump of the tokens (fence.jump_mark): a sequence, because all see it at once and no rollback
-- takes it back.
create sequence fence.jumped as bigint minvalue -9223372036854775808 start 0;

-- The database that issued the last token (fence.running_database). If the running one differs, tokens jump
-- (fence.jump).
--
-- The columns superseded_… name a database that is superseded, and by which one (fence.supersede). Backups and standbys
-- copy the row: it is only about the database that it names.
create table fence.database_identity (
    only_row               boolean primary key default true check (only_row),
    system_identifier      bigint not null,
    timeline               integer not null,
    tokens_oid             oid not null,
    started_at             timestamptz, -- of the postmaster
    jumps                  bigint not null default 0,
    jumped_at              timestamptz,
    accepted_at            timestamptz, -- when an operator last accepted it as it was (fence.accept_database)
    superseded_system      bigint,
    superseded_timeline    integer,
    superseded_by_system   bigint,
    superseded_by_timeline integer,
    superseded_at          timestamptz
);

-- The revision of the functions under guard/ that this schema has, and the oldest program that can call them.
create table fence.guard_revision (
    only_row    boolean primary key default true check (only_row),
    revision    integer not null,
    serves_from integer not null,
    digest      text not null
);

-- One fence per resource. A fence that was granted or written is never deleted, except by fence.sweep_claims.
create table fence.fences (
    resource      fence.name primary key,
    granted_token fence.token not null default 0,
    last_token    fence.token not null default 0,
    last_sequence fence.sequence_number not null default 0,
    last_version  bigint not null default 0,
    open          boolean not null default false,
    last_digest   bytea,
    admitted_in   xid8,
    subtree_token fence.token,
    adopted_token fence.token
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.fences.granted_token is 'the newest token granted on the name';
comment on column fence.fences.last_version is 'the newest version that any record of the resource ever had';
comment on column fence.fences.open is 'whether that grant may still write';
comment on column fence.fences.last_digest is
    'the content of the last accepted write if it was numbered, which identifies its retry';
comment on column fence.fences.admitted_in is
    'the top-level transaction that fence.guard last admitted to write to the resource: the proof for triggers';
comment on column fence.fences.subtree_token is
    'the newest token of a subtree lease on the name, which may write below while it is the granted one, and the fence is '
    'open; 0: one was requested; null: none';
comment on column fence.fences.adopted_token is
    'the token of a subtree lease above that may write here, above the granted one (fence.lock_write_tokens); null: none';

-- The end of a subtree lease looks up the fences that have adopted its token. No other change of a fence touches this.
create index fences_adopted on fence.fences (adopted_token) where adopted_token is not null;

-- Names whose rows were made for a request that was not granted, or for a write that may have been rejected
-- (fence.sweep_unused).
create table fence.unused (
    name     fence.name primary key,
    check_at timestamptz not null
);

create index unused_check on fence.unused (check_at);

-- A sample of the fences that each principal made (fence.note_new_fence).
create table fence.fences_made (
    principal text collate "C" not null,
    "full"    boolean not null,
    id        uuid primary key default gen_random_uuid()
);

create index fences_made_principal on fence.fences_made (principal);
create index fences_made_full on fence.fences_made (principal) where "full";

create table fence.records (
    resource      text collate "C" not null,
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
    prefix                  text collate "C" primary key check (prefix = '' or prefix::fence.name is not null),
    rule                    text not null default 'strict' check (rule in ('strict', 'same_token')),
    authority               text not null default 'builtin' check (authority in ('builtin', 'external')),
    leases                  text check (leases in ('postgres', 'redis', 'redlock')),
    require_lease_id        boolean not null default false,
    require_live_lease      boolean not null default false,
    require_principal_owner boolean not null default false,
    max_hold_ms             bigint check (max_hold_ms between 100 and 31536000000),
    principal               text collate "C" not null default '',
    updated_at              timestamptz not null default clock_timestamp()
);

comment on column fence.policies.leases is
    'what keeps the leases on these names; null: what the gateways keep leases in by default';
comment on column fence.policies.require_principal_owner is
    'an acquire needs an owner_id that is its principal, or the principal, a slash and more';
comment on column fence.policies.max_hold_ms is
    'the longest time from the grant of a lease to its end, however often it is renewed; null: no limit';
comment on column fence.policies.principal is 'who set it first; by SQL: sql: and the role of the connection';

-- Each guard and each acquire asks whether there is such a policy at all.
create index policies_external on fence.policies (prefix) where authority = 'external';
create index policies_principal_owner on fence.policies (prefix) where require_principal_owner;

-- Leases and sessions

-- Running leases, and for a while ended ones, so that a late holder can be given the reason for its loss.
--
-- An owner is a principal and an owner_id, here and in the tables below. The principal is empty where a gateway asks
-- for no credential.
create table fence.leases (
    lock             text collate "C" not null,
    fencing_token    bigint not null,
    lease_id         uuid not null,
    owner_id         text,
    principal        text collate "C" not null default '',
    mode             text not null default 'exclusive',
    scope            text not null default 'node',
    ttl_ms           integer not null,
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
    end_reason       text,
    end_note         text,
    kept             boolean not null default false,
    primary key (lock, fencing_token)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.leases.principal is 'who acquired it; by SQL: sql: and the role of the connection';
comment on column fence.leases.requested_ttl_ms is 'the TTL of the acquire, which a renewal does not change';
comment on column fence.leases.expires_at is 'moved by renewals; of a lease in a session, by its heartbeats';
comment on column fence.leases.hold_until is
    'the latest expires_at, however often the lease is renewed, by the policy in force at the last time; null: no limit';
comment on column fence.leases.check_at is
    'until the lease has ended: when the sweep looks at it next; at most expires_at';
comment on column fence.leases.adopted is
    'an acquire with the same request_id found it, so its client has it, see fence.give_back';
comment on column fence.leases.kept is
    'older than the retention, and the newest of its lock when the sweep saw that: the sweep skips it, and deletes it when '
    'it looks at one after it';

-- P1 in the schema itself: whatever a function gets wrong, two leases that are not shared cannot run on one lock.
create unique index leases_running on fence.leases (
    lock, (case when mode = 'shared' then fencing_token else 0 end)) where ended_at is null;

-- A query for the request of a lock names this collation, so that it can use no other index: in a small table every
-- index on locks seems to lead to one row, and the plan stays while a lock gets thousands of ended leases or of
-- waiters. "POSIX" has the order of "C".
create unique index leases_request on fence.leases (lock collate "POSIX", request_id) where request_id is not null;

-- "owner_id is not null" keeps this index out of the plans of queries for a lock: while the statistics know of no
-- running lease, they would read all of it. Each query for an owner implies it. The column, which is never null, has no
-- NOT NULL, from which PostgreSQL 19 would conclude that the condition always holds.
create index leases_owner on fence.leases (owner_id, principal) where ended_at is null and owner_id is not null;

create index leases_session on fence.leases (session_id, lock) where ended_at is null and session_id is not null;

-- The sweep finds its work by indexes that hold nothing else: idle locks, however many, cost it nothing. Only the
-- sweep changes check_at, so renewals and keepalives never change the index on it.
create index leases_check on fence.leases (check_at) where ended_at is null and check_at < 'infinity';
create index leases_ended on fence.leases (ended_at) where ended_at is not null and not kept;
create index leases_expired on fence.leases (lock, fencing_token) where end_reason = 'expired';

-- The locks whose newest lease was that of a claim when fence.sweep_ended kept it, and its end: fence.sweep_claims may
-- forget them. A table of its own, because each statement on leases would prepare the condition of an index.
create table fence.claimed (
    lock     text collate "C" primary key,
    ended_at timestamptz not null
);

create index claimed_ended on fence.claimed (ended_at);

-- A row for each lease that expired and that was ended otherwise than by the sweep of leases, for example by the next
-- grant. A sweep counts and deletes them.
create table fence.expiries (
    id uuid primary key default gen_random_uuid()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- One TTL and one heartbeat for any number of leases. settled: its leases have ended, too.
create table fence.sessions (
    session_id    uuid primary key,
    owner_id      text not null,
    principal     text collate "C" not null default '',
    ttl_ms        integer not null,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check_at      timestamptz not null default '-infinity',
    metadata      json,
    ended_at      timestamptz,
    end_reason    text,
    settled       boolean not null default false
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);

comment on column fence.sessions.check_at is
    'until it is settled: when the sweep looks at it next; at most expires_at while it has not ended';

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
    lock        text collate "C" not null,
    gateway_id  uuid not null,
    owner_id    text not null,
    principal   text collate "C" not null default '',
    mode        text not null,
    scope       text not null,
    ttl_ms      integer not null,
    session_id  uuid,
    session_until timestamptz,
    request_id  text,
    metadata    json,
    queued_at   timestamptz not null,
    deadline_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

create index waiters_queue on fence.waiters (lock, ticket);
create index waiters_writers on fence.waiters (lock, ticket) where mode = 'exclusive';

-- The planner takes each lock for one with a single waiter, so it always reads a queue by these indexes. From statistics
-- of a time when one long queue was all there was, it would read the waiters of all locks in the order of their tickets.
alter table fence.waiters alter column lock set (n_distinct = -1);

-- In the collation of leases_request, for the same reason.
create unique index waiters_request on fence.waiters (lock collate "POSIX", request_id) where request_id is not null;

create index waiters_owner on fence.waiters (owner_id, principal);
create index waiters_session on fence.waiters (session_id) where session_id is not null;
create index waiters_in_sessions on fence.waiters (lock) where session_until is not null;

comment on column fence.waiters.session_until is 'when its session expires, see fence.keep_alive; null: it is in none';

-- Watches

-- The locks that a client watches: gateways are notified of their changes (fence.note_change).
create table fence.watched (
    lock  fence.name primary key,
    until timestamptz not null,
    key   uuid not null default gen_random_uuid()
) with (fillfactor = 50);

comment on column fence.watched.key is 'stands for the lock in notifications, which every role can hear';

-- Users' own tables

-- The tables whose rows can be written only under the fence of their resource (fence.protect). The number names the
-- functions of its triggers: unlike an oid it survives a dump and a restore.
create table fence.protected_tables (
    id           integer generated always as identity primary key,
    table_id     regclass not null unique,
    table_name   text collate "C", -- when it was protected, as in SQL; another table may have it now (fence.namesake)
    template     text collate "C" not null,
    mode         text not null check (mode in ('enforce', 'observe')),
    inserts      text not null default 'guarded' check (inserts in ('guarded', 'free')),
    protected_at timestamptz not null default clock_timestamp(),
    http         boolean not null default false,
    http_role    regrole,
    problem      text, -- what a gateway found wrong with the protection (fence.check_tables)
    checked_at   timestamptz not null default '-infinity'
);

comment on column fence.protected_tables.inserts is
    'free: a row is inserted without a token; a change of it needs one';
comment on column fence.protected_tables.http is 'transactions by HTTP may write to the table (fence.open_table)';
comment on column fence.protected_tables.http_role is 'the role with whose rights they do; null: that of the gateway';

-- Who calls fence.protect or fence.unprotect for a table. What these call runs with the rights of the schema's owner,
-- and nothing there tells whose code called: session_user is the user of the session, which may run a function of
-- another role, in an index or a trigger for example. A table owner may insert table_id only, so the default names the
-- role whose code it is. fence.check_table_owner deletes the row before anything else happens.
create table fence.table_callers (
    table_id  oid,
    caller    name not null default current_user,
    called_in xid8 not null default pg_current_xact_id(),
    id        uuid primary key default gen_random_uuid()
);

-- Rejections by SQL: those whose transaction was committed (fence.try_guard, and protected tables in the mode "observe"),
-- and what the sweep read of the others (fence.read_slots). The sweep moves them to fence.rejections. A transaction of a
-- user only inserts here, so it never waits for another one, and never makes one wait.
create table fence.reported (
    id            bigint generated always as identity primary key,
    first_at      timestamptz not null default clock_timestamp(),
    last_at       timestamptz not null default clock_timestamp(),
    resource      text collate "C" not null,
    table_name    text collate "C" not null,
    code          text not null,
    reason        text not null,
    address       text not null,
    principal     text collate "C" not null default '',
    fencing_token bigint not null,
    sequence      bigint,
    granted_token bigint not null,
    last_token    bigint not null,
    last_sequence bigint not null,
    count         bigint not null default 1,
    reported_in   xid8 not null default pg_current_xact_id()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- How many a transaction has recorded (fence.report_rejection).
create index reported_in on fence.reported (reported_in);

comment on column fence.reported.table_name is
    'the protected table, with its schema; '''' for a rejection by try_guard';

-- The number of rejections by SQL. A sequence for each cause counts them, those among them whose transaction rolls back:
-- nextval is not transactional. The sweep adds up what is new (fence.sweep_reported). In the mode "observe" the writes
-- passed, and would be rejected in the mode "enforce".
create table fence.rejected_by_sql (
    code       text,
    reason     text,
    mode       text check (mode in ('enforce', 'observe')),
    counter    regclass not null,
    read       bigint not null default 0,
    rejections bigint not null default 0,
    primary key (code, reason, mode)
) with (fillfactor = 50);

comment on column fence.rejected_by_sql.read is 'the value of the sequence when it was read';

-- The newest rejections by SQL whose transaction was rolled back (fence.note_rejection): setval is not transactional
-- either. Each slot is of one group: a former holder that retries in a loop needs one. The next new group takes the slot
-- that rejected_slot counts to. The sweep moves them to fence.reported (fence.read_slots). The sequences are not unlogged:
-- on a standby that is promoted, PostgreSQL 15 leaves those broken ("bad magic number in sequence").
--
-- key    names the sequence of the hash of the group, with how often it was rejected in the lowest 20 bits
-- cause  the token, the code and the reason, and the lowest 6 bits of the role's oid
-- place  the block of the fence in fence.fences, and the protected table
-- first, last  when the group took the slot and when its last rejection was, in microseconds since 1970
-- read   the value of key when it was read; missed: it could not be read then
create table fence.rejected_slots (
    slot   integer primary key,
    key    regclass not null,
    cause  regclass not null,
    place  regclass not null,
    first  regclass not null,
    last   regclass not null,
    read   bigint not null default 0,
    missed bigint not null default 0
) with (fillfactor = 50);

create sequence fence.rejected_slot minvalue 0 start 0 maxvalue 31 cycle;

do $$
declare
    v_cause text;
    v_name  text;
begin
    foreach v_cause in array array['token_required/', 'token_unknown/', 'token_stale/superseded', 'token_stale/released',
        'token_stale/reused', 'token_stale/shared', 'token_reused/', 'lease_mismatch/', 'lease_expired/', 'truncate/']
    loop
        foreach v_name in array array['rejected', 'observed'] loop
            v_name := v_name || '_by_sql_' || rtrim(replace(v_cause, '/', '_'), '_');
            execute format('create sequence fence.%s', v_name);
            insert into fence.rejected_by_sql (code, reason, mode, counter)
            values (split_part(v_cause, '/', 1), split_part(v_cause, '/', 2),
                case when v_name ~ '^rejected' then 'enforce' else 'observe' end, 'fence.' || v_name);
        end loop;
    end loop;
    for v_slot in 0 .. 31 loop
        foreach v_name in array array['key', 'cause', 'place', 'first', 'last'] loop
            execute format('create sequence fence.rejected_%s_%s minvalue 0 start 0', v_name, v_slot);
        end loop;
        insert into fence.rejected_slots (slot, key, cause, place, first, last)
        values (v_slot, 'fence.rejected_key_' || v_slot, 'fence.rejected_cause_' || v_slot,
            'fence.rejected_place_' || v_slot, 'fence.rejected_first_' || v_slot, 'fence.rejected_last_' || v_slot);
    end loop;
end
$$;

-- Who calls the gateways

-- API keys. A key whose time is over, or that was revoked, is shown for some time and then deleted.
create table fence.keys (
    id           text collate "C" primary key check (id ~ '^[0-9A-Za-z]{10}$'),
    digest       bytea not null check (octet_length(digest) = 32),
    principal    text collate "C" not null,
    description  text not null default '',
    grants       text[] collate "C" not null,
    created_at   timestamptz not null default clock_timestamp(),
    created_by   text collate "C" not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);

comment on column fence.keys.id is 'a part of the key that is no secret';
comment on column fence.keys.digest is 'the SHA-256 of the whole key';
comment on column fence.keys.grants is 'each a scope, a colon and a prefix; an empty prefix is every name';
comment on column fence.keys.last_used_at is 'by the gateways, about once a minute';

create index keys_by_age on fence.keys (created_at desc, id);

-- Counts the changes of fence.keys but those of last_used_at, so that a gateway reads the keys again only after one.
create table fence.key_changes (
    only_row boolean primary key default true check (only_row),
    changes  bigint not null default 0
);

insert into fence.key_changes default values;

-- The names that a role may use by SQL, if it may not use all (fence.allow_names): each prefix covers the name itself and
-- all names below it.
create table fence.allowed_names (
    prefix  fence.name,
    role_id regrole,
    primary key (prefix, role_id)
);

-- What administrators did, each entry written in the transaction of the action. Entries are only added, until the sweep
-- deletes the old ones.
create table fence.audit (
    id        bigint generated always as identity primary key,
    at        timestamptz not null default clock_timestamp(),
    principal text collate "C" not null,
    address   text not null,
    action    text not null,
    name      text collate "C" not null,
    details   jsonb not null,
    prunable  boolean not null generated always as (principal = 'anonymous' or action = 'access_refused') stored,
    seal      bigint
);

comment on column fence.audit.principal is 'who did it; by SQL: sql: and the role of the connection';
comment on column fence.audit.address is 'of the client; of a connection to the database by a local socket: local';
comment on column fence.audit.name is
    'the lock, the resource, or the prefix of the policy; empty where the action was not on a name, or was on all';
comment on column fence.audit.prunable is
    'callers without rights can cause any number of such entries, so the sweep deletes them sooner';
comment on column fence.audit.seal is 'of fence.audit_seals; null: not sealed yet';

-- What a principal did in the last day (fence.check_actor).
create index audit_principal on fence.audit (principal, at) where action <> 'access_refused';

create index audit_prunable on fence.audit (id) where prunable;
create index audit_unsealed on fence.audit (id) where seal is null;
create index audit_seal on fence.audit (seal) where seal is not null;

-- Each seal has the hashes of some entries of fence.audit, and the hash of the seal before it (fence.seal_audit).
create table fence.audit_seals (
    seal     bigint primary key,
    at       timestamptz not null,
    previous text not null,
    entries  text not null,
    hash     text not null
);

comment on column fence.audit_seals.previous is 'the hash of the seal before; empty: this is the first one';
comment on column fence.audit_seals.entries is
    'a line for each entry: its id, its time in microseconds since 1970 (-: it is prunable), the SHA-256 of its text';
comment on column fence.audit_seals.hash is
    'the SHA-256 of a line with seal, at in microseconds since 1970 and previous, and of the lines of entries';

-- Observation: rejections, reports of the gateways, the inventory

-- Rejected writes. The unique key says which rejections are one group: a zombie that retries in a loop is one row with
-- a count. first_at and last_at are by the clocks of the gateways, of writes by SQL by the database's. changed_at is by
-- the database's clock: readers follow the changes by it, and the sweep deletes by it.
create table fence.rejections (
    id            bigint generated always as identity primary key,
    resource      text collate "C" not null,
    key           text collate "C" not null,
    code          text not null,
    reason        text not null,
    source        text not null,
    address       text not null,
    principal     text collate "C" not null default '',
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

comment on column fence.rejections.principal is 'who sent the writes; by SQL: sql: and the role of the connection';
comment on column fence.rejections.fencing_token is 'the token of the write; 0 where there was none';
comment on column fence.rejections.late_ms is
    'how long after the end of its lease the latest of them came, in milliseconds; null if unknown';
comment on column fence.rejections.changed_at is 'when it was last recorded, by the database''s clock';

create unique index rejections_group on fence.rejections (
    resource, fencing_token, code, reason, source, address, principal);
create index rejections_changed_at on fence.rejections (changed_at, id);

-- The rejections by SQL of each protected table.
create index rejections_sql on fence.rejections (key, changed_at) where source = 'sql';

-- The last report of each gateway (fence.keep_sample has the columns in this order). Totals count from the start of the
-- gateway. Each gateway adds up the last hour of all gateways in memory, from these totals.
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
    durations        bigint[] not null,
    draining         boolean not null default false,
    ended            boolean not null default false
) with (fillfactor = 50);

comment on column fence.gateway_states.rejected is 'a number for each code';
comment on column fence.gateway_states.durations is
    'a histogram of accepted writes by duration: a number for each bound, and one for those above all bounds';

-- Numbers for the whole database. One gateway at a time counts (fence.recount).
create table fence.inventory (
    only_row             boolean primary key default true check (only_row),
    at                   timestamptz,
    took_ms              bigint not null default 0,
    due_at               timestamptz not null default '-infinity',
    locks                bigint not null default 0,
    held                 bigint not null default 0,
    leases_of            jsonb not null default '{}', -- the principals with 1,000 running leases or more, and how many
    expiring             bigint not null default 0,
    expired              bigint not null default 0,
    overdue_ms           bigint not null default 0,
    waiting              bigint not null default 0,
    oldest_wait_ms       bigint not null default 0,
    grantable            jsonb not null default '[]', -- queues whose first waiter could be granted its lock, since when
    stuck_ms             bigint not null default 0,
    sessions             bigint not null default 0,
    newest_token         bigint not null default 0,
    tables_enforce       bigint not null default 0,
    tables_observe       bigint not null default 0,
    tables_with_problems bigint not null default 0
) with (fillfactor = 50);

comment on column fence.inventory.at is 'when it was counted; null: never yet';
comment on column fence.inventory.due_at is 'when the next count is due';

insert into fence.inventory default values;

-- Nodes of a cluster

-- A row if this database is a node of a cluster, where each name is at one node (fence.check_here).
create table fence.cluster (
    only_row   boolean primary key default true check (only_row),
    place_type text not null check (place_type in ('text', 'bigint', 'uuid'))
);

comment on column fence.cluster.place_type is
    'the type of the column by which tables are distributed, so that their rows are at the node of their names';

-- The names for which fences are made here, by their hashes (fence.place_hash).
create table fence.ranges (
    range_id uuid primary key default gen_random_uuid(),
    first    bigint not null,
    last     bigint not null,
    moves_to text,
    sent     boolean not null default false
);

comment on column fence.ranges.moves_to is 'the node to which the names move; null: they stay';
comment on column fence.ranges.sent is 'whether all names have arrived there';

-- Rows of names that are on their way from node to node (fence.export_trees, fence.import_rows).
create table fence.transfers (
    transfer_id uuid,
    n           bigint generated always as identity,
    moves_to    text, -- null at the node after
    kind        text not null, -- the table
    item        text not null,
    primary key (transfer_id, n)
);

-- The transfers and ranges that have come to this node: a gateway may send one again, after a pause of any length. So none
-- is deleted; there is one for about 500 names that have moved.
create table fence.imported (
    id uuid primary key,
    at timestamptz not null default clock_timestamp()
);

-- The sweep

-- The parts of the sweep. One gateway at a time does each part: it locks the row (fence.sweep).
create table fence.sweeps (
    part            text primary key,
    age             interval,
    count_max       bigint,
    swept_at        timestamptz not null default '-infinity',
    counted         bigint not null default 0,
    counted_through bigint not null default 0,
    stats_reset     timestamptz
) with (fillfactor = 50);

comment on column fence.sweeps.age is
    'how long the part keeps things, unless the caller says otherwise (of audit: longer); also for sessions that have ended';
comment on column fence.sweeps.count_max is
    'how many it keeps; of audit: of the prunable entries, those among so many newest';
comment on column fence.sweeps.counted is
    'of rejections: the most that there were with an id up to counted_through; of reported: all that were ever moved';
comment on column fence.sweeps.stats_reset is
    'of reported: that of pg_stat_archiver at the last sweep, which the recovery from a crash changes';

insert into fence.sweeps (part, age, count_max) values
    ('leases', null, null), ('sessions', '10 minutes', null), ('expiries', null, null),
    ('ended leases', '10 minutes', null), ('claims', '1 day', null), ('reported', null, null), ('rejections', '7 days', 100000),
    ('gateways', null, null), ('waiting', '10 minutes', null),
    ('audit', '400 days', 100000), ('unused', null, null);

update fence.sweeps s set stats_reset = a.stats_reset from pg_stat_archiver a where s.part = 'reported';

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

-- A lease that is to be ended (fence.end_leases).
create type fence.lease_end as (lock text, fencing_token bigint, reason text);
