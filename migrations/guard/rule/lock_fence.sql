-- fence.lock_fence(name) → the fence of the name, locked until the end of the transaction; it is made if missing. If
-- the name has a fence of all names below (fence.subtrees), that is locked first. A later statement makes every
-- decision about a lease: under READ COMMITTED a statement's snapshot is older than the lock that it waited for.
--
-- A caller that does not use the fence notes that (fence.note_unused). While this waits for the row of an unused name,
-- the sweep may delete it; then it is made again.
--
-- Order of locks, here and everywhere: gates, subtrees, fences, leases and sessions; of each kind by name.
--
-- Raises 23514 (constraint name_is_path) if the argument is not a name.
create or replace function fence.lock_fence(p_name text) returns fence.fences
language plpgsql
as $$
declare
    v_fence fence.fences;
begin
    perform from fence.subtrees s where s.name = p_name for update;
    loop
        select * into v_fence from fence.fences where resource = p_name for update;
        exit when found;
        insert into fence.fences (resource) values (p_name) on conflict do nothing;
    end loop;
    return v_fence;
end
$$;
