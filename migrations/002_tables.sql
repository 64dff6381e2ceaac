-- Fencing of users' own tables by SQL.

-- The transaction that fence.guard admitted last. A trigger of a protected table compares it with its own transaction.
alter table fence.fences add column admitted_in xid8;

comment on column fence.fences.admitted_in is
    'the top-level transaction that fence.guard last admitted to write to the resource: the proof for triggers';

-- The tables whose rows can be written only under the fence of their resource (fence.protect). The number names the
-- functions of its triggers: unlike an oid it survives a dump and a restore.
create table fence.protected_tables (
    id           integer generated always as identity primary key,
    table_id     regclass not null unique,
    template     text collate "C" not null,
    mode         text not null check (mode in ('enforce', 'observe')),
    protected_at timestamptz not null default clock_timestamp(),
    http         boolean not null default false,
    http_role    regrole
);

comment on column fence.protected_tables.http is 'transactions by HTTP may write to the table (fence.open_table)';
comment on column fence.protected_tables.http_role is 'the role with whose rights they do; null: that of the gateway';

-- Rejections by SQL whose transaction was committed (fence.try_guard, and protected tables in the mode "observe"). The
-- sweep moves them to fence.rejections. A transaction of a user only inserts here, so it never waits for another one,
-- and never makes one wait.
create table fence.reported (
    id            bigint generated always as identity primary key,
    at            timestamptz not null default clock_timestamp(),
    resource      text collate "C" not null,
    table_name    text collate "C" not null,
    code          text not null,
    reason        text not null,
    address       text not null,
    fencing_token bigint not null,
    sequence      bigint,
    granted_token bigint not null,
    last_token    bigint not null,
    last_sequence bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

comment on column fence.reported.table_name is 'the protected table, with its schema; '''' for a rejection by try_guard';

-- The number of rejections by SQL, a sequence per code. They count rejections whose transaction rolls back, because
-- nextval is not transactional. After a crash of the server each may be up to 32 too high.
create sequence fence.rejected_by_sql_token_required minvalue 0 start 0;
create sequence fence.rejected_by_sql_token_unknown minvalue 0 start 0;
create sequence fence.rejected_by_sql_token_stale minvalue 0 start 0;
create sequence fence.rejected_by_sql_token_reused minvalue 0 start 0;
create sequence fence.rejected_by_sql_lease_mismatch minvalue 0 start 0;
create sequence fence.rejected_by_sql_lease_expired minvalue 0 start 0;
create sequence fence.rejected_by_sql_truncate minvalue 0 start 0;

insert into fence.sweeps (part) values ('reported');

-- Functions whose names are now those of the public interface: the internal ones are fence.acquire_lease,
-- fence.renew_lease and fence.release_lease.
drop function if exists fence.acquire(fence.leases, integer, uuid);
drop function if exists fence.renew(text, text, uuid, bigint, integer);
drop function if exists fence.release(text, text, uuid, bigint);

-- The rejections by SQL of each protected table.
create index rejections_sql on fence.rejections (key, changed_at) where source = 'sql';

-- What gateways found wrong with the protection of each table, and when (fence.check_tables).
alter table fence.protected_tables
    add column problem text,
    add column checked_at timestamptz not null default '-infinity';

alter table fence.inventory
    add column tables_enforce bigint not null default 0,
    add column tables_observe bigint not null default 0,
    add column tables_with_problems bigint not null default 0;
