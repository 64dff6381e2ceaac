-- fence.check_new_fence(principal): the principal may make another fence. A fence stays for ever once its name was
-- granted or written, so a principal that uses ever new names would fill the disk: it may make about 10,000,000
-- (fence.note_new_fence). The principal '' is not bounded: its gateway asks for no credential, and trusts its callers.
--
-- Raises LF007 beyond the bound. docs/security.md says how an operator allows more.
create or replace function fence.check_new_fence(p_principal text) returns void
language plpgsql stable set enable_seqscan = off
as $$
begin
    if exists (select from fence.fences_made m where m.principal = p_principal and m."full") then
        raise exception 'the principal has made about ten million fences, as many as one may: use names that were used '
            'before, or have an operator allow more' using errcode = 'LF007';
    end if;
end
$$;

-- fence.note_new_fence(principal) counts a fence that the principal makes. Every 256th, drawn by lot, leaves a row in
-- fence.fences_made. The row that completes 10,000,000 is marked full, and the principal may make no more
-- (fence.check_new_fence). Rows are only inserted, so transactions of one principal do not wait for each other.
create or replace function fence.note_new_fence(p_principal text) returns void
language plpgsql set enable_seqscan = off
as $$
declare
    c_fences_max constant integer := 10000000;
    c_sample     constant integer := 256;
begin
    if p_principal <> ''
        and get_byte(uuid_send(gen_random_uuid()), 0) % c_sample = 0 -- the caller could seed random()
    then
        insert into fence.fences_made (principal, "full")
        select p_principal, count(*) + 1 >= c_fences_max / c_sample from fence.fences_made m
        where m.principal = p_principal;
    end if;
end
$$;

-- fence.note_unused(names) notes names whose rows may turn out to be unused. The sweep deletes the rows of names that
-- are never granted nor written (fence.sweep_unused).
create or replace function fence.note_unused(p_names text[]) returns void
language sql
as $$
    insert into fence.unused (name, check_at)
    select n, clock_timestamp() + interval '1 minute' from unnest(p_names) n order by n collate "C"
    on conflict do nothing
$$;

-- fence.sweep_unused(rows_max) → done: the number of fences that were deleted, because they were never granted nor
-- written; more. It forgets that a subtree lease was requested, if none was granted. A name that has a waiter is looked at
-- again after a minute. See fence.sweep.
--
-- The rows are locked first, and judged by a later statement. A caller that needs a fence and finds none makes it again
-- (fence.lock_fence, fence.lock_subtree, fence.admit).
create or replace function fence.sweep_unused(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_now     timestamptz := clock_timestamp();
    v_names   text[];
    v_fences  text[];
    v_waiting text[];
begin
    v_names := array(
        select u.name from fence.unused u where u.check_at <= v_now
        order by u.check_at limit p_rows_max for update skip locked);
    if cardinality(v_names) = 0 then
        return;
    end if;
    v_fences := array(select f.resource from fence.fences f where f.resource = any (v_names)
        for update skip locked);

    v_waiting := array(
        select n from unnest(v_names) n
        where exists (select from fence.waiters w where w.lock = n)
            or exists (select from fence.fences f where f.resource = n and f.resource <> all (v_fences)));
    update fence.unused u set check_at = clock_timestamp() + interval '1 minute' where u.name = any (v_waiting);
    v_names := array(select n from unnest(v_names) n where n <> all (v_waiting));

    update fence.fences f set subtree_token = null where f.resource = any (v_names) and f.subtree_token = 0;
    delete from fence.fences f
    where f.resource = any (v_names) and f.granted_token = 0 and f.last_token = 0 and f.last_version = 0;
    get diagnostics done = row_count;
    delete from fence.unused u where u.name = any (v_names);
    more := cardinality(v_names) + cardinality(v_waiting) = p_rows_max;
end
$$;
