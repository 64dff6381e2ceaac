-- fence.sweep_claims(rows_max, age) → done: the number of claimed names that were forgotten (fence.claim): their leases and
-- fences were deleted; more. See fence.sweep. A queue uses ever new names, which would fill the disk.
--
-- A name may be forgotten when no token is admitted on it any more, and none will be that is older than its newest: its
-- fence is closed, and no open subtree above it has an older token. Without the fence, the old tokens are unknown
-- (fence.rule). A new one is greater than they, because the sequence gave them. Names with records keep their fence, for
-- the versions; so do those whose tokens another service issues, and those for which somebody waits.
--
-- The newest lease of such a name has ended before the age, and is kept (fence.sweep_ended). If its fence must stay, the
-- lease loses its metadata, so that it is not looked at again.
create or replace function fence.sweep_claims(p_rows_max integer, p_age interval, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_age;
    v_locks  text[];
    v_due    text[];
begin
    v_locks := array(
        select l.lock from fence.leases l
        where l.kept and l.metadata is not null and fence.is_claim(l.lease_id) and l.ended_at < v_before
        order by l.ended_at limit p_rows_max);
    more := cardinality(v_locks) = p_rows_max;
    v_locks := array(
        select f.resource from fence.fences f where f.resource = any (v_locks) order by f.resource for update skip locked);

    v_due := array(
        select f.resource from fence.fences f
        where f.resource = any (v_locks) and not f.open and f.last_version = 0 and f.last_token <= f.granted_token
            and not exists (select from fence.waiters w where w.lock = f.resource)
            and not exists (
                select from fence.subtrees s
                where s.name = f.resource
                    or s.open and s.granted_token < f.granted_token and s.name = any (fence.ancestors(f.resource)))
            and not fence.has_external_tokens(f.resource)
            and not exists (
                select from fence.leases l
                where l.lock = f.resource and not (l.kept and l.metadata is not null and fence.is_claim(l.lease_id))));
    update fence.leases l set metadata = null
    where l.lock = any (v_locks) and l.kept and l.lock <> all (v_due);
    delete from fence.leases l where l.lock = any (v_due);
    delete from fence.fences f where f.resource = any (v_due);
    get diagnostics done = row_count;
    more := more and done > 0;
end
$$;
