-- Each guard and each acquire asks whether there is such a policy at all.
create index policies_external on fence.policies (prefix) where authority = 'external';
create index policies_principal_owner on fence.policies (prefix) where require_principal_owner;

-- The mark of the last jump of the tokens (fence.jump_mark): a sequence, because all see it at once and no rollback takes
-- it back.
create sequence fence.jumped as bigint minvalue -9223372036854775808 start 0;

-- Events whose transaction has committed, or will. They get their place among the events of the lock when a gateway
-- publishes them (fence.publish_events). No transaction waits for another to insert here.
--
-- xid is the transaction's. The newest event of a lock keeps a snapshot: what it did not show is not published yet.
alter table fence.events add column snapshot pg_snapshot;

create table fence.unpublished (
    lock  text collate "C" not null,
    xid   xid8 not null default pg_current_xact_id(),
    id    bigint not null,
    event fence.events not null,
    primary key (lock, xid, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Bounds of what one principal may create.

-- Who set the policy first. '': unknown.
alter table fence.policies add column principal text collate "C" not null default '';

comment on column fence.policies.principal is 'who set it first; by SQL: sql: and the role of the connection';

-- What a principal did in the last day (fence.check_actor).
create index audit_principal on fence.audit (principal, at);

-- The queues whose first waiter could be granted its lock, and since when (fence.recount).
alter table fence.inventory
    add column grantable jsonb not null default '[]',
    add column stuck_ms bigint not null default 0;

-- A sample of the fences that roles made by SQL (fence.check_new_fence).
create table fence.fences_made (
    role   name not null,
    "full" boolean not null
);

create index fences_made_role on fence.fences_made (role);
create index fences_made_full on fence.fences_made (role) where "full";

-- A row for each lease that expired and that was ended otherwise than by the sweep of leases, for example by the next
-- grant. A sweep counts and deletes them.
create table fence.expiries (
    id bigint generated always as identity primary key
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

insert into fence.sweeps (part) values ('expiries');

-- Each gateway adds up the last hour of all gateways in memory, from the totals in fence.gateway_states.
alter table fence.gateway_states add column ended boolean not null default false;
drop table fence.samples;
drop function if exists fence.sweep_history;
