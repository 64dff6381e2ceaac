-- fence.limit_fences(locks) marks the fences of leases that got a hold_until after their grant: from then on
-- fence.admit decides every write to them, because it looks at the lease. fence.grant_lease marks the fences of other
-- leases.
--
-- The caller has locked leases, which come after fences in the order of locks. So this waits for no fence; the next
-- renewal marks a fence that is locked now. Until then only the policy keeps its writes off the fast path.
create or replace function fence.limit_fences(p_locks text[]) returns void
language plpgsql
as $$
begin
    update fence.fences f set limited = true
    from (
        select u.resource from fence.fences u
        where u.resource = any (p_locks) and not u.limited
        order by u.resource for update skip locked) unmarked
    where f.resource = unmarked.resource;
end
$$;
