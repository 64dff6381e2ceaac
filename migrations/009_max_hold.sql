-- The longest that a lease may be held, and what a request with a request_id asked for.

alter table fence.policies
    add column max_hold_ms bigint check (max_hold_ms between 100 and 31536000000);
comment on column fence.policies.max_hold_ms is 'the longest time from the grant of a lease to its end, however often it is renewed; null: no limit';

alter table fence.leases
    add column hold_until timestamptz,
    add column asked_ttl_ms integer,
    drop constraint leases_end_reason_check,
    add constraint leases_end_reason_check check (end_reason in ('expired', 'released', 'broken', 'max_hold'));
comment on column fence.leases.hold_until is 'when the lease ends for good and its fence closes, however often it is renewed; null: no limit';
comment on column fence.leases.asked_ttl_ms is 'the TTL of the acquire, which a renewal does not change';

alter table fence.sessions add column policies_seen bigint not null default 0;
comment on column fence.sessions.policies_seen is 'the policies by which its leases got their hold_until, as fence.policies_digest';

-- The leases whose fence is still to be closed at hold_until: those that run, and those that expired earlier and may still write.
create index leases_hold on fence.leases (hold_until)
    where hold_until is not null and (ended_at is null or end_reason = 'expired');

alter table fence.fences add column limited boolean not null default false;
comment on column fence.fences.limited is 'the newest grant may have a hold_until: fence.admit decides its writes, and no fast path';

insert into fence.sweeps (part) values ('holds');

-- Nothing is in it where no hold was ever limited: then fence.write need not look at the fences for it.
create index fences_limited on fence.fences (resource) where limited;
