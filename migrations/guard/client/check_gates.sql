-- fence.check_gates(lock, scope) raises 54000 if a request for the lock takes a gate (fence.lock_gate), and this
-- transaction has 64 already. The lock table of a server with default settings holds some thousands, for all databases.
create or replace function fence.check_gates(p_lock text, p_scope text default 'node') returns void
language plpgsql
as $$
begin
    if (position('/' in p_lock) > 0 or p_scope = 'subtree') and cardinality(fence.gates_held()) >= 64 then
        raise exception 'this transaction has used locks below 64 names, which is the limit'
            using errcode = 'program_limit_exceeded',
            hint = 'Use several transactions: commit after each lock, or after a few. '
                'Or acquire a name above with the scope subtree.';
    end if;
end
$$;
