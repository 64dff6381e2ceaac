-- fence.waiting_against(lock, mode, scope) → those who wait for a lease that one of this kind could not run beside; the same names as
-- in fence.running_against.
create or replace function fence.waiting_against(p_lock text, p_mode text, p_scope text) returns setof fence.waiters
language plpgsql
as $$
begin
    return query
    select w.* from fence.waiters w
    where w.lock = p_lock and 'exclusive' in (w.mode, p_mode) and fence.waits(w);

    if position('/' in p_lock) > 0 and exists (select from fence.subtrees) then
        return query
        select w.* from fence.waiters w
        where w.lock = any (fence.ancestors(p_lock)) and w.scope = 'subtree' and 'exclusive' in (w.mode, p_mode) and fence.waits(w);
    end if;

    if p_scope = 'subtree' then
        return query
        select w.* from fence.waiters w
        where w.lock > p_lock || '/' and w.lock < p_lock || '0' and 'exclusive' in (w.mode, p_mode) and fence.waits(w);
    end if;
end
$$;
