-- Functions whose names are now those of the public interface: the internal ones are fence.acquire_lease,
-- fence.renew_lease and fence.release_lease.
drop function if exists fence.acquire(fence.leases, integer, uuid);
drop function if exists fence.renew(text, text, uuid, bigint, integer);
drop function if exists fence.release(text, text, uuid, bigint);
