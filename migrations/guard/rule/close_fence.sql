-- fence.close_fence(lock, token): the grant may not write any more, to the name and to names below. If a newer token
-- was granted, the fence stays as it is. If this very transaction was admitted to write (fence.guard), it is not any
-- more. The caller has locked the fence (fence.lock_fence).
create or replace function fence.close_fence(p_lock text, p_token bigint) returns void
language plpgsql
as $$
begin
    update fence.fences f set open = false, admitted_in = null
    where f.resource = p_lock and f.granted_token = p_token and f.open;
    update fence.subtrees s set open = false where s.name = p_lock and s.granted_token = p_token and s.open;
end
$$;
