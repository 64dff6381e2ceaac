-- fence.break(lock, note) → one row: outcome broken and the lease that was ended (also one that had expired and
-- that nobody replaced), or outcome free where nobody may write, or not_found. The fence is closed.
create or replace function fence.break(
    p_lock text, p_note text,
    out outcome text, out lease fence.leases)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences;
begin
    select * into v_fence from fence.fences f where f.resource = p_lock for update;
    if not found or v_fence.granted_token = 0 then
        outcome := 'not_found';
        return;
    end if;
    if not v_fence.open then
        outcome := 'free';
        return;
    end if;

    outcome := 'broken';
    update fence.leases l
    set ended_at = coalesce(l.ended_at, clock_timestamp()), end_reason = 'broken', end_note = p_note
    where l.lock = p_lock and l.fencing_token = v_fence.granted_token
    returning l.* into lease;
    update fence.fences f set open = false where f.resource = p_lock;
end
$$;
