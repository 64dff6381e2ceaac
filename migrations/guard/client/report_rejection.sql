-- fence.report_rejection(resource, token, sequence, ruling, table) → whether it has recorded a rejection by SQL, which lasts
-- if the transaction is committed. It counts each, and records 100 at most in a transaction. table is the protected table;
-- null for none. Only the begin of a resource that is too long for a name is recorded: an index could not hold it all.
create or replace function fence.report_rejection(
    p_resource text, p_token bigint, p_sequence bigint, p_ruling fence.ruling, p_table oid) returns boolean
language plpgsql
as $$
begin
    perform nextval(('fence.rejected_by_sql_' || p_ruling.verdict)::regclass);
    perform fence.move_sequences();
    insert into fence.reported (resource, table_name, code, reason, address, fencing_token, sequence, granted_token,
        last_token, last_sequence, principal)
    select left(p_resource, 512), coalesce(fence.name_of_table(p_table), ''), p_ruling.verdict, p_ruling.reason,
        coalesce(host(inet_client_addr()), 'local'), coalesce(p_token, 0), p_sequence, p_ruling.granted_token,
        p_ruling.last_token, p_ruling.last_sequence, 'sql:' || session_user
    where not exists (select from fence.reported r where r.reported_in = pg_current_xact_id() offset 99);
    return found;
end
$$;
