-- fence.raise_rejection(resource, token, sequence, ruling, table) notes a rejection by SQL, and raises it:
--
-- LF101 token_required, LF102 token_unknown, LF103 token_stale, LF104 lease_mismatch, LF105 lease_expired,
-- LF106 token_reused, LF107 truncate (a protected table that has many resources was to be truncated)
--
-- DETAIL has the numbers as JSON, HINT the advice. table is the protected table; null for a call of fence.guard. Of a
-- resource that is too long for a name only the begin is shown.
create or replace function fence.raise_rejection(
    p_resource text, p_token bigint, p_sequence bigint, p_ruling fence.ruling, p_table oid) returns void
language plpgsql
as $$
declare
    v_resource text := p_resource;
    v_write    text := p_token || coalesce('.' || p_sequence, '');
    v_sqlstate text;
    v_message  text;
    v_hint     text;
    v_table    text := fence.name_of_table(p_table);
    v_only     text := nullif(current_setting('fencegate.resource', true), '');
begin
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
            v_sqlstate := 'LF101';
            if p_table is null then
                v_message := 'the token is null';
                v_hint := 'Is a variable or a parameter empty? Pass the fencing token of a lease.';
            elsif v_resource <> p_resource then
                v_message := format('the name of this resource has %s bytes, the limit is 512',
                    octet_length(p_resource));
                v_hint := 'No transaction can write this row. Use shorter values in the columns of the template.';
            else
                v_message := 'this transaction has no admitted token for it';
                v_hint := case
                    when current_setting('fencegate.token', true) <> '' and v_only <> p_resource then format(
                        'fencegate.resource is %s, so fencegate.token does not count for this row.',
                        fence.quote_begin(v_only))
                    when exists (select from fence.admitted a where a.resource = any (fence.ancestors(p_resource)))
                        then 'It is admitted for a name above, by a lease on that name alone. '
                            'To write to all names below, acquire that lease with the scope subtree.'
                    else format('Begin a transaction, call fence.guard(%L, token) first, then write. '
                        'In autocommit mode each statement is a transaction of its own. '
                        'Or set fencegate.token by set local.', p_resource) end;
            end if;
        when 'token_unknown' then
            v_sqlstate := 'LF102';
            v_message := format('the token %s was never granted', v_write);
            v_hint := case
                when p_ruling.granted_token = 0 then format(
                    'No lease was ever granted on %s: acquire it (fence.acquire), or check the name.', v_resource)
                else 'Pass the fencing token of a lease on this name, or on a name above it with a subtree lease.' end;
        when 'token_stale' then
            v_sqlstate := 'LF103';
            if p_ruling.reason = 'reused' then
                v_message := format('the token %s was used: the last accepted write had %s.%s',
                    v_write, p_ruling.last_token, p_ruling.last_sequence);
                v_hint := case
                    when p_sequence is null and p_ruling.last_sequence = 0 then 'A token without a sequence admits one '
                        'transaction. It was committed; whether it was this one, repeated, is not known. '
                    else '' end
                    || 'Number the transactions of one token: each sequence is greater than the one before.';
            elsif p_ruling.reason = 'shared' then
                v_message := format('the token %s is that of a shared lease, which cannot write', v_write);
                v_hint := 'Acquire an exclusive lease to write.';
            else
                v_message := format('the token %s is stale: %s', v_write, case p_ruling.reason
                    when 'superseded' then format('the newest token is %s',
                        greatest(p_ruling.granted_token, p_ruling.last_token))
                    when 'max_hold' then 'its lease reached the longest hold that the policy allows'
                    else 'its lease was released or broken' end);
                v_hint := 'The lease is lost. Stop this work, and acquire the lock anew before you read and write again.';
            end if;
        when 'lease_mismatch' then
            v_sqlstate := 'LF104';
            v_message := format('the lease_id is not that of the lease with token %s', v_write);
            v_hint := 'Pass the lease_id of the grant.';
        when 'lease_expired' then
            v_sqlstate := 'LF105';
            v_message := format('the lease with token %s has expired, and the policy requires a live lease', v_write);
            v_hint := 'Acquire the lock anew before you read and write again.';
        when 'token_reused' then
            v_sqlstate := 'LF106';
            v_message := format('the last accepted write had this token and sequence, %s', v_write);
            v_hint := 'If this is that transaction, repeated, it is done. '
                'If it is another one, give it a greater sequence.';
        when 'truncate' then
            v_sqlstate := 'LF107';
            v_message := format('the rows of %s belong to many resources', v_table);
            v_hint := 'Delete the rows of each resource under its token, or call fence.unprotect first.';
    end case;
    raise exception using
        errcode = v_sqlstate,
        message = v_resource || ': ' || v_message,
        detail = json_strip_nulls(json_build_object(
            'code', p_ruling.verdict, 'reason', nullif(p_ruling.reason, ''), 'resource', v_resource, 'table', v_table,
            'fencing_token', p_token, 'sequence', p_sequence, 'granted_token', p_ruling.granted_token,
            'last_token', p_ruling.last_token, 'last_sequence', p_ruling.last_sequence))::text,
        hint = v_hint;
end
$$;
