-- fence.commit_durably() → the setting. The commit of this transaction waits until it is on disk, whatever the
-- configuration says or becomes before it: synchronous_commit = off is raised to on; other values are kept and fixed
-- for the transaction.
--
-- Called first by each function whose effect is acknowledged (P9, P14). What need not be on disk is set to off after
-- it.
create or replace function fence.commit_durably() returns text
language sql volatile
as $$
    select set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'off' then 'on'
            else current_setting('synchronous_commit') end, true)
$$;

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
