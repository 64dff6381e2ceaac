-- fence.note_unused(names) notes names whose rows may turn out to be unused. The sweep deletes the rows of names that
-- are never granted nor written (fence.sweep_unused).
create or replace function fence.note_unused(p_names text[]) returns void
language sql
as $$
    insert into fence.unused (name, check_at)
    select n, clock_timestamp() + interval '1 minute' from unnest(p_names) n order by n collate "C"
    on conflict do nothing
$$;
