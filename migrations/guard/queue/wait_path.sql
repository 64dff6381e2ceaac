-- fence.wait_path(owner, ticket, ahead, behind, meeting) → the cycle through the wait of this owner with this ticket,
-- as fence.wait_cycle returns it: the steps ahead from the wait to the owner in which the two searches met, and the
-- steps behind from there back to the owner.
create or replace function fence.wait_path(
    p_owner text, p_ticket bigint, p_ahead fence.wait_step[], p_behind fence.wait_step[], p_meeting text,
    out cycle json, out tickets bigint[])
language plpgsql stable
as $$
declare
    v_owners text[] := '{}';
    v_locks  text[] := '{}';
    v_index  integer;
begin
    tickets := '{}';
    v_index := (select s.ordinality from unnest(p_ahead) with ordinality s where s.owner_id = p_meeting limit 1);
    while v_index > 0 loop
        -- The step's lock is what its parent waits for.
        v_locks := p_ahead[v_index].lock || v_locks;
        tickets := p_ahead[v_index].ticket || tickets;
        v_index := p_ahead[v_index].parent;
        v_owners := case when v_index = 0 then p_owner else p_ahead[v_index].owner_id end || v_owners;
    end loop;
    v_index := (select s.ordinality from unnest(p_behind) with ordinality s where s.owner_id = p_meeting limit 1);
    while v_index > 0 loop
        v_owners := v_owners || p_behind[v_index].owner_id;
        v_locks := v_locks || p_behind[v_index].lock;
        tickets := tickets || p_behind[v_index].ticket;
        v_index := p_behind[v_index].parent;
    end loop;
    cycle := (
        select json_agg(json_build_object('owner_id', u.owner_id, 'lock', u.lock) order by u.ordinality)
        from unnest(v_owners, v_locks) with ordinality u (owner_id, lock, ordinality));
end
$$;
