-- "owner_id is not null" keeps this index out of the plans of queries for a lock: while the statistics know of no running
-- lease, they would read all of it. Each query for an owner implies it.
drop index fence.leases_owner;
create index leases_owner on fence.leases (owner_id, principal) where ended_at is null and owner_id is not null;
