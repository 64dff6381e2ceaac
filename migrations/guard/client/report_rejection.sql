-- fence.report_rejection(resource, token, sequence, ruling, table) counts a rejection by SQL, and records it if the
-- transaction is committed. table is the protected table; null for none. Only the begin of a
-- resource that is too long for a name is recorded: an index could not hold it all.
create or replace function fence.report_rejection(
    p_resource text, p_token bigint, p_sequence bigint, p_ruling fence.ruling, p_table oid) returns void
language plpgsql
as $$
begin
    perform fence.count_rejection(p_ruling.verdict);
    perform fence.move_sequences();
    insert into fence.reported (resource, table_name, code, reason, address, fencing_token, sequence, granted_token,
        last_token, last_sequence, principal)
    values (left(p_resource, 512), coalesce(fence.name_of_table(p_table), ''), p_ruling.verdict, p_ruling.reason,
        coalesce(host(inet_client_addr()), 'local'), coalesce(p_token, 0), p_sequence, p_ruling.granted_token,
        p_ruling.last_token, p_ruling.last_sequence, 'sql:' || session_user);
end
$$;
