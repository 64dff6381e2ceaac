-- fence.lock_claims(resources, tokens, wait) → the subtrees and the fences that were locked for these claims, in the order of locks
-- (fence.lock_fence).
--
-- A statement that writes calls it once, for all its claims, before it locks any other fence: fence.transact, and fence.write where not
-- all of its writes are plain. Called a second time it could wait for a lower name, and so deadlock. A resource may repeat.
--
-- covering  the open subtrees whose newest token is presented, locked shared: a grant of one of these names, or of a subtree above or
--           below, waits for these writes, and sees their fences
-- locked    the fences. One that was made while this waited is not among them, nor, where wait is false, one that another transaction
--           has locked
--
-- Makes the fences that are missing: of resources in a covering subtree, and of those whose tokens another lock service issues.
create or replace function fence.lock_claims(
    p_resources text[], p_tokens bigint[], p_wait boolean, out covering text[], out locked text[])
language plpgsql
as $$
begin
    covering := '{}';
    if exists (select from fence.subtrees s where s.open and s.granted_token = any (p_tokens)) then
        covering := array(
            select s.name from fence.subtrees s
            where s.open and s.granted_token = any (p_tokens)
                and s.name = any (array(select a from unnest(p_resources) r, unnest(fence.ancestors(r)) a))
            order by s.name for share);
        -- A resource below that nobody was granted itself has no fence yet.
        insert into fence.fences (resource)
        select c.resource from unnest(p_resources, p_tokens) as c (resource, token)
        where exists (
            select from fence.subtrees s
            where s.name = any (covering) and s.name = any (fence.ancestors(c.resource)) and s.granted_token = c.token)
        order by c.resource collate "C"
        on conflict do nothing;
    end if;
    if exists (select from fence.policies) then
        -- A resource whose tokens come from elsewhere has no grant that would have made its fence.
        insert into fence.fences (resource)
        select c.resource from unnest(p_resources, p_tokens) as c (resource, token), fence.policy_for(c.resource) p
        where p.authority = 'external' and c.token is not null
        order by c.resource collate "C"
        on conflict do nothing;
    end if;

    if p_wait then
        locked := array(
            select f.resource from fence.fences f where f.resource = any (p_resources) order by f.resource for update);
    else
        locked := array(
            select f.resource from fence.fences f where f.resource = any (p_resources) order by f.resource for update skip locked);
    end if;
end
$$;
