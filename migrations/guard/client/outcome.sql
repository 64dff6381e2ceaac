-- fence.outcome(resource, token, sequence, lease_id) → the verdict of fence.try_guard, for a client that lost the answer to
-- the COMMIT of a transaction with this number. token_reused: it was committed; admitted: it was not. This is a question:
-- it admits nothing, keeps nothing locked, and is neither counted nor recorded as a rejection.
create or replace function fence.outcome(
    resource text, token bigint, sequence bigint, lease_id uuid default null,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_ruling fence.ruling;
begin
    begin
        v_ruling := fence.guard_by_rule(resource, token, sequence, lease_id, null);
        raise exception 'undone' using errcode = 'LF100';
    exception
        when sqlstate 'LF100' then
            null; -- v_ruling stays
    end;
    select v_ruling.verdict, v_ruling.reason, v_ruling.granted_token, v_ruling.last_token, v_ruling.last_sequence
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;
