-- fence.gates_held() → the keys of the gates (fence.lock_gate) that this transaction has.
--
-- The first request of a transaction finds that it has written nothing yet, and so looks no further: to read pg_locks
-- costs more than a request, and more with the locks of others. A count in a setting would be the caller's to change.
create or replace function fence.gates_held() returns bigint[]
language plpgsql
as $$
begin
    if pg_current_xact_id_if_assigned() is null then
        return '{}'; -- not in one expression, which would be a query, and lock the view, in any case
    end if;
    return array(
        select distinct l.objid::bigint from pg_locks l
        where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.classid = 1718511205 and l.objsubid = 2);
end
$$;
