-- fence.postpone_recount(pause): the next count (fence.recount) is due after the pause at the earliest. The commit does
-- not wait for the disk.
create or replace function fence.postpone_recount(p_pause interval) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update fence.inventory i set due_at = greatest(i.due_at, clock_timestamp() + p_pause);
end
$$;
