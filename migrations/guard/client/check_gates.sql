-- fence.check_gates(lock, scope) raises 54000 if a request for the lock takes a gate (fence.lock_gate), and this
-- transaction has 64 already. The lock table of a server with default settings holds some thousands, for all databases.
--
-- The first request of a transaction finds that it has written nothing yet, and so looks no further: to read pg_locks
-- costs more than a request, and more with the locks of others. A count in a setting would be the caller's to change.
create or replace function fence.check_gates(p_lock text, p_scope text default 'node') returns void
language plpgsql
as $$
begin
    if (position('/' in p_lock) > 0 or p_scope = 'subtree') and pg_current_xact_id_if_assigned() is not null then
        -- Not in one expression, which would be a query, and lock the view, in any case.
        if 64 <= (
            select count(*) from pg_locks l
            where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.classid = 1718511205 and l.objsubid = 2)
        then
            raise exception 'this transaction has used locks below 64 names, which is the limit'
                using errcode = 'program_limit_exceeded',
                hint = 'Use several transactions: commit after each lock, or after a few. '
                    'Or acquire a name above with the scope subtree.';
        end if;
    end if;
end
$$;
