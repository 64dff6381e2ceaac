-- fence.lease_provider(lease_id) → what keeps the lease: postgres, redis or redlock. Its lease_id says so: it is a
-- random UUID (version 4), or one of version 8 with the number of the provider in the half byte after the version; 3 is
-- that of a claim (fence.is_claim), in postgres. So it is known for the whole life of a lease, also after a change of
-- policy.
create or replace function fence.lease_provider(p_lease_id uuid) returns text
language sql immutable
return case substr(p_lease_id::text, 15, 2) when '81' then 'redis' when '82' then 'redlock' else 'postgres' end;
