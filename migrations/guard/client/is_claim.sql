-- fence.is_claim(lease_id) → whether fence.claim granted the lease: no other has such a lease_id (fence.lease_provider).
create or replace function fence.is_claim(p_lease_id uuid) returns boolean
language sql immutable
return substr(p_lease_id::text, 15, 2) = '83';
