-- fence.wait_path(ahead, behind, meeting) → the cycle as fence.wait_cycle returns it: the steps ahead from the wait to
-- the owner of the step meeting, in which the two searches met, and the steps behind from there back to the wait's owner.
create or replace function fence.wait_path(
    p_ahead fence.wait_step[], p_behind fence.wait_step[], p_meeting fence.wait_step,
    out cycle json, out tickets bigint[])
language plpgsql stable
as $$
declare
    v_index integer;
begin
    tickets := '{}';
    v_index := fence.step_of(p_ahead, p_meeting);
    while v_index > 0 loop
        tickets := p_ahead[v_index].ticket || tickets; -- the wait of the step's parent
        v_index := p_ahead[v_index].parent;
    end loop;
    v_index := fence.step_of(p_behind, p_meeting);
    while v_index > 0 loop
        tickets := tickets || p_behind[v_index].ticket; -- its own wait
        v_index := p_behind[v_index].parent;
    end loop;
    cycle := (
        select json_agg(
            json_build_object('owner_id', w.owner_id, 'principal', w.principal, 'lock', w.lock) order by t.ordinality)
        from unnest(tickets) with ordinality t (ticket, ordinality)
        join fence.waiters w on w.ticket = t.ticket);
end
$$;
