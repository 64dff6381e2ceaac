-- fence.make_fences(names) → the names whose fences it has made, of those that have none. It leaves out names whose fence
-- another transaction has just made, for which an insert would wait, and finds them by halves: 1 ms for each of these is
-- over when the lock_timeout ends the insert. For fence.claim_leases.
create or replace function fence.make_fences(p_names text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1ms'
as $$
declare
    v_half integer := cardinality(p_names) / 2;
    v_made text[];
begin
    with made as (
        insert into fence.fences (resource) select n from unnest(p_names) n order by n collate "C"
        on conflict do nothing
        returning resource
    )
    select array_agg(m.resource::text) into v_made from made m;
    return coalesce(v_made, '{}');
exception
    when lock_not_available or deadlock_detected then
        return case when v_half > 0
            then fence.make_fences(p_names[:v_half]) || fence.make_fences(p_names[v_half + 1:]) else '{}' end;
end
$$;
