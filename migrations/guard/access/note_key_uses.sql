-- fence.note_key_uses(ids, ages_ms): these keys were last used so long ago. The commit does not wait for the disk.
create or replace function fence.note_key_uses(p_ids text[], p_ages_ms bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    perform from fence.keys k where k.id = any (p_ids) order by k.id for no key update;
    update fence.keys k
    set last_used_at = greatest(k.last_used_at, clock_timestamp() - u.age_ms * interval '1 millisecond')
    from unnest(p_ids, p_ages_ms) as u (id, age_ms)
    where k.id = u.id;
end
$$;
