-- What gateways tell of themselves, and what the database holds, for those who look on.

-- The gateways as they last told. Their totals are counted from their start: a sample is what is more than the totals that were told
-- before, so one that is told twice, or whose answer was lost, counts once.
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
comment on column fence.gateway_states.durations is 'how many accepted writes took how long: a number for each of the bounds, and one for those above';

-- What each gateway did since its sample before. Of the durations those at the end that are 0 are left out.
create table fence.samples (
    gateway_id uuid not null,
    at         timestamptz not null,
    span_ms    bigint not null,
    accepted   bigint not null,
    rejected   jsonb not null,
    failed     bigint not null,
    durations  bigint[] not null
);

create index samples_at on fence.samples (at);

comment on column fence.samples.span_ms is 'the time that it covers, which ends at "at"';

-- What there is in the whole database. One gateway at a time counts (guard/recount.sql).
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
comment on column fence.inventory.due_at is 'when it is to be counted next';

insert into fence.inventory default values;
