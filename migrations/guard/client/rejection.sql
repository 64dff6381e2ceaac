-- fence.rejection_error(resource, token, sequence, ruling, table) notes a rejection by SQL. → the error that the caller
-- raises. It does so itself, because each function in between adds lines to the error's CONTEXT.
--
-- LF101 token_required, LF102 token_unknown, LF103 token_stale, LF104 lease_mismatch, LF105 lease_expired,
-- LF106 token_reused, LF107 truncate (a protected table that has many resources was to be truncated)
--
-- 42501 instead, and no note, for a resource that the role may not use (fence.check_use)
--
-- DETAIL has the numbers as JSON, HINT the advice. table is the protected table; null for a call of fence.guard. Of a
-- resource that is too long for a name only the begin is shown.
create or replace function fence.rejection_error(
    p_resource text, p_token bigint, p_sequence bigint, p_ruling fence.ruling, p_table oid,
    out state text, out message text, out detail text, out hint text)
language plpgsql
as $$
declare
    v_resource text := p_resource;
    v_write    text := p_token || coalesce('.' || p_sequence, '');
    v_table    text := fence.name_of_table(p_table);
    v_only     text := nullif(current_setting('fencegate.resource', true), '');
begin
    perform fence.check_use(p_resource); -- the numbers of other names are not for its role
    if octet_length(p_resource) > 512 then
        v_resource := left(p_resource, 100) || '…';
    end if;
    begin
        perform fence.note_rejection(p_resource, p_token, p_ruling, p_table);
    exception
        when others then
            null; -- whatever is wrong with the notes, the caller learns the verdict
    end;
    case p_ruling.verdict
        when 'token_required' then
            state := 'LF101';
            if p_table is null then
                message := 'the token is null';
                hint := 'Is a variable or a parameter empty? Pass the fencing token of a lease.';
            elsif v_resource <> p_resource then
                message := format('the name of this resource has %s bytes, the limit is 512',
                    octet_length(p_resource));
                hint := 'No transaction can write this row. Use shorter values in the columns of the template.';
            else
                message := 'this transaction has no fencing token for it';
                hint := case
                    when current_setting('fencegate.token', true) <> '' and v_only <> p_resource then format(
                        'fencegate.resource is %s, so fencegate.token does not count for this row.',
                        fence.quote_begin(v_only))
                    when exists (select from fence.admitted a where a.resource = any (fence.ancestors(p_resource)))
                        then 'It has a token for a name above, of a lease on that name alone. '
                            'To write to all names below, acquire that lease with the scope subtree.'
                    when p_ruling.granted_token = 0 and exists (
                        select
                        from fence.protected_tables p, fence.template_segments(p.template) s, pg_attribute a
                        where p.table_id = p_table and a.attrelid = p_table and a.attname = s.column_name
                            and (a.attidentity <> '' or a.atthasdef))
                        then format('The database makes the key of a new row, so nobody has a token for it before: '
                            'protect the table with inserts => ''free'', or guard a name above with the token of a '
                            'subtree lease. If the row exists, call fence.guard(%L, token) first in the '
                            'transaction, with the token of a lease (fence.acquire).', p_resource)
                    else format('Begin a transaction, call fence.guard(%L, token) first, with the token of a '
                        'lease (fence.acquire), then write. '
                        'In autocommit mode each statement is a transaction of its own. '
                        'Or call fence.set_token in the transaction.', p_resource) end;
            end if;
        when 'token_unknown' then
            state := 'LF102';
            message := format('the token %s was never granted on this name', v_write);
            hint := case
                when p_ruling.granted_token = 0 then format(
                    'No lease on %s is known: acquire it (fence.acquire), or check the name. Those of claimed rows are '
                    'forgotten a day after their end.', v_resource)
                else 'Pass the fencing token of a lease on this name, or on a name above it with a subtree lease.' end;
        when 'token_stale' then
            state := 'LF103';
            if p_ruling.reason = 'reused' then
                message := format('the token %s was used before: the last accepted write had %s',
                    v_write, p_ruling.last_token || coalesce('.' || nullif(p_ruling.last_sequence, 0), ''));
                hint := case
                    when p_sequence is null and p_ruling.last_sequence = 0 then 'A token without a sequence admits one '
                        'transaction. It was committed; whether it was this one, repeated, is not known. '
                    else '' end
                    || 'Number the transactions of one token: fence.guard(resource, token, sequence), '
                    'each sequence greater than the one before.';
            elsif p_ruling.reason = 'shared' then
                message := format('the token %s is that of a shared lease, which cannot write', v_write);
                hint := 'Acquire an exclusive lease to write.';
            else
                message := format('the token %s is stale: %s', v_write, case p_ruling.reason
                    when 'superseded' then format('the newest token is %s',
                        greatest(p_ruling.granted_token, p_ruling.last_token))
                    else 'its lease was released or broken' end);
                hint := 'The lease is lost. Stop this work, and acquire the lock anew before you read and write again.';
            end if;
        when 'lease_mismatch' then
            state := 'LF104';
            message := format('the lease_id is not that of the lease with token %s', v_write);
            hint := 'Pass the lease_id that was returned with this token (fence.acquire).';
        when 'lease_expired' then
            state := 'LF105';
            message := format('the lease with token %s has expired, and the policy requires a live lease', v_write);
            hint := 'Acquire the lock anew before you read and write again.';
        when 'token_reused' then
            state := 'LF106';
            message := format('the last accepted write had this token and sequence, %s', v_write);
            hint := 'If this is that transaction, repeated, it is done. '
                'If it is another one, give it a greater sequence.';
        when 'truncate' then
            state := 'LF107';
            message := format('TRUNCATE is rejected: the rows of %s belong to many resources', v_table);
            hint := 'Delete the rows of each resource under its token, or call fence.unprotect first.';
    end case;
    message := v_resource || ': ' || message;
    detail := json_strip_nulls(json_build_object(
        'code', p_ruling.verdict, 'reason', nullif(p_ruling.reason, ''), 'resource', v_resource, 'table', v_table,
        'fencing_token', p_token, 'sequence', p_sequence, 'granted_token', p_ruling.granted_token,
        'last_token', p_ruling.last_token, 'last_sequence', p_ruling.last_sequence));
end
$$;

-- fence.has_lease_id(resource, token, lease_id) → whether the lease with this token (fence.leases_of) has this lease_id.
-- For fence.guard, which sets no search_path.
create or replace function fence.has_lease_id(p_resource text, p_token bigint, p_lease_id uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (select from fence.leases_of(p_resource, p_token) l where l.lease_id = p_lease_id);
end
$$;

-- fence.quote_begin(text) → a text in quotes for an error message: its first 100 characters, if it has more.
create or replace function fence.quote_begin(p_text text) returns text
language sql
as $$
    select quote_literal(left(p_text, 100) || case when length(p_text) > 100 then '…' else '' end)
$$;
