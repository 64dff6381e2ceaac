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
