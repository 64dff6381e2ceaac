-- Who may call the gateways.

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

-- What administrators did, each entry written in the transaction of the action. Entries are only added, until the sweep
-- deletes the old ones.
create table fence.audit (
    id        bigint generated always as identity primary key,
    at        timestamptz not null default clock_timestamp(),
    principal text collate "C" not null,
    address   text not null,
    action    text not null,
    name      text collate "C" not null,
    details   jsonb not null
);

comment on column fence.audit.principal is 'who did it; by SQL: sql: and the role of the connection';
comment on column fence.audit.address is 'of the client; of a connection to the database by a local socket: local';
comment on column fence.audit.name is
    'the lock, the resource, or the prefix of the policy; empty where the action was not on a name, or was on all';

-- The sweep deletes entries of callers without a credential sooner.
create index audit_anonymous on fence.audit (id) where principal = 'anonymous';

insert into fence.sweeps (part) values ('audit');

-- The principals. Empty: a gateway that asks for no credential.
alter table fence.leases add column principal text collate "C" not null default '';
alter table fence.waiters add column principal text collate "C" not null default '';
alter table fence.sessions add column principal text collate "C" not null default '';
alter table fence.rejections add column principal text collate "C" not null default '';
alter table fence.reported add column principal text collate "C" not null default '';
alter table fence.policies add column require_principal_owner boolean not null default false;

-- The principals that have 1,000 running leases or more, and how many, as the inventory was counted.
alter table fence.inventory add column leases_of jsonb not null default '{}';

comment on column fence.leases.principal is 'who acquired it; by SQL: sql: and the role of the connection';
comment on column fence.rejections.principal is 'who sent the writes; by SQL: sql: and the role of the connection';
comment on column fence.policies.require_principal_owner is
    'an acquire needs an owner_id that is its principal, or the principal, a slash and more';

drop index fence.rejections_group;
create unique index rejections_group on fence.rejections (
    resource, fencing_token, code, reason, source, address, principal);

-- An owner is a principal and an owner_id.
drop index fence.leases_owner;
drop index fence.waiters_owner;
create index leases_owner on fence.leases (owner_id, principal) where ended_at is null;
create index waiters_owner on fence.waiters (owner_id, principal);
