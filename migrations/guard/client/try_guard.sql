-- fence.try_guard(resource, token, sequence, lease_id, digest) → the verdict of fence.guard as a row. It does not raise
-- a rejection.
--
-- verdict  admitted; replayed: the transaction was committed before; or the code of the rejection
-- reason   of token_stale: superseded, released, reused, shared, max_hold; otherwise ''
-- granted_token, last_token, last_sequence  the fence as it was judged
--
-- A rejection is recorded if the caller commits. It keeps nothing locked.
create or replace function fence.try_guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_ruling fence.ruling := fence.guard_or_undo(resource, token, sequence, lease_id, digest);
begin
    if v_ruling.verdict not in ('admitted', 'replayed') then
        perform fence.report_rejection(resource, token, sequence, v_ruling, null);
    end if;
    select v_ruling.verdict, v_ruling.reason, v_ruling.granted_token, v_ruling.last_token, v_ruling.last_sequence
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;
