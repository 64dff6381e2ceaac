-- fence.guard_or_undo(resource, token, sequence, lease_id, digest) is fence.guard_by_rule. But the fences that it locks
-- for a rejection are not locked any more when it returns: a rejected transaction that stays open delays no grant (P7).
create or replace function fence.guard_or_undo(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_digest bytea)
returns fence.ruling
language plpgsql
as $$
declare
    v_ruling fence.ruling;
begin
    begin
        v_ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, p_digest);
        if v_ruling.verdict not in ('admitted', 'replayed') then
            raise exception 'rejected' using errcode = 'LF100';
        end if;
    exception
        when sqlstate 'LF100' then
            null; -- v_ruling stays
    end;
    return v_ruling;
end
$$;
