-- fence.check_writable() raises 25006 in a read-only transaction, as all are on a standby, and says what to do instead.
-- The statements that follow it would raise the same SQLSTATE without that.
create or replace function fence.check_writable() returns void
language plpgsql
as $$
begin
    if pg_is_in_recovery() then
        raise exception 'guards and leases change the fence, and this server is a standby'
            using errcode = 'read_only_sql_transaction', hint = 'Connect to the primary. Where a connection string names '
                'several hosts, target_session_attrs=read-write selects it.';
    elsif current_setting('transaction_read_only') = 'on' then
        raise exception 'guards and leases change the fence, and this transaction is read-only'
            using errcode = 'read_only_sql_transaction', hint = 'Begin it with: begin read write.';
    end if;
end
$$;
