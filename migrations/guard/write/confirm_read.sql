-- fence.confirm_read() → true. The commit of this transaction waits until the commits of all that the transaction has
-- read are as durable as configured (P14), also if it changes nothing: those may still wait for a standby, or their
-- wait was ended before one had confirmed them. It writes a message to the WAL, which comes after them.
--
-- Raises 25006 on a standby.
create or replace function fence.confirm_read() returns boolean
language plpgsql
as $$
begin
    if pg_is_in_recovery() then
        raise exception 'a standby can''t confirm what it shows' using errcode = 'read_only_sql_transaction';
    end if;
    perform fence.commit_durably();
    perform pg_logical_emit_message(true, 'fencegate', 'read');
    return true;
end
$$;
