-- fence.renew_claim(owner_id, lease_id, ttl_ms) makes all leases of a claim that run last ttl_ms from now (null: the TTL
-- that each has), but not longer than their policies allow. It is part of the public interface: docs/sql/leases.md describes
-- it, and its arguments and columns stay. → a row for each that runs. What is missing was lost, released or replaced: its
-- owner stops that work.
--
-- It waits for no other transaction. A lease that another one has locked, which renews or releases it, is returned with
-- the expires_at that it has.
--
-- Raises as fence.renew does.
create or replace function fence.renew_claim(owner_id text, lease_id uuid, ttl_ms integer default null)
returns table (resource text, fencing_token bigint, expires_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    v_locks    text[];
    v_tokens   bigint[];
    v_renewals fence.leases[];
    v_decided  text[];
    v_lease    record;
    v_answer   record;
begin
    perform fence.check_lease_ref('any', renew_claim.owner_id, renew_claim.lease_id, 1);
    if renew_claim.ttl_ms is not null then
        perform fence.check_ttl(renew_claim.ttl_ms);
    end if;
    select array_agg(l.lock::text), array_agg(l.fencing_token::bigint) into v_locks, v_tokens
    from fence.leases l
    where l.owner_id = renew_claim.owner_id and l.ended_at is null and l.lease_id = renew_claim.lease_id
        and fence.may_use(l.lock);
    if v_locks is null then
        return;
    end if;
    v_renewals := array(
        select r.lease
        from fence.renew_leases(v_locks, array_fill(renew_claim.owner_id, array[cardinality(v_locks)]),
            array_fill(renew_claim.lease_id, array[cardinality(v_locks)]), v_tokens,
            array_fill(renew_claim.ttl_ms, array[cardinality(v_locks)])) r);
    v_decided := array(select r.lock from unnest(v_renewals) r);
    if cardinality(v_decided) < cardinality(v_locks) then
        for v_lease in
            select l.lock, l.fencing_token from unnest(v_locks, v_tokens) as u (lock, token)
            join fence.leases l on l.lock = u.lock and l.fencing_token = u.token
            where u.lock <> all (v_decided)
            order by l.lock for update of l skip locked
        loop
            v_answer := fence.renew_lease(
                v_lease.lock, renew_claim.owner_id, renew_claim.lease_id, v_lease.fencing_token, renew_claim.ttl_ms);
            v_decided := v_decided || v_lease.lock::text;
            if v_answer.status = 'live' then
                v_renewals := v_renewals || v_answer.lease;
            end if;
        end loop;
        v_renewals := v_renewals || array(
            select l from unnest(v_locks, v_tokens) as u (lock, token)
            join fence.leases l on l.lock = u.lock and l.fencing_token = u.token
            where u.lock <> all (v_decided) and l.ended_at is null and l.expires_at > clock_timestamp());
    end if;
    return query select r.lock::text, r.fencing_token::bigint, r.expires_at from unnest(v_renewals) r;
end
$$;
