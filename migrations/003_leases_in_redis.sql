-- Leases that are kept in Redis.

alter table fence.policies add column leases text check (leases in ('postgres', 'redis', 'redlock'));

comment on column fence.policies.leases is
    'what keeps the leases on these names; null: what the gateways keep leases in by default';
