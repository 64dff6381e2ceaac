-- fence.guard_or_raise(resource, token, sequence, lease_id, digest) is fence.guard by the whole rule.
create or replace function fence.guard_or_raise(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_digest bytea)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_ruling fence.ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, p_digest);
    v_error  record;
begin
    if v_ruling.verdict not in ('admitted', 'replayed') then
        v_error := fence.rejection_error(p_resource, p_token, p_sequence, v_ruling, null);
        raise exception using errcode = v_error.state, message = v_error.message, detail = v_error.detail,
            hint = v_error.hint;
    end if;
    return v_ruling.verdict = 'admitted';
end
$$;
