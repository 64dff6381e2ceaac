-- fence.lock_write_tokens(resources, tokens, wait) → the subtrees and the fences that were locked for these write
-- tokens, in the order of locks (fence.lock_fence).
--
-- A statement that writes calls it once, for all its tokens, before it locks any other fence: fence.transact does, and
-- fence.write unless all of its writes are plain. A second call could wait for a lower name, and so deadlock. A
-- resource may repeat.
--
-- covering  the open subtrees whose newest token is presented, locked shared: a grant of one of these names, or of a
--           subtree above or below, waits for these writes, and sees their fences
-- locked    the fences. A fence that was made while this waited is not among them; nor, if wait is false, is one that
--           another transaction has locked
--
-- Makes the missing fences of resources in a covering subtree, and of those whose tokens another lock service issues.
--
-- Raises 40001 if the sweep deleted such a fence between its look-up and its lock (fence.sweep_unused): sent again, the
-- statement makes it again. Raises LF007, see fence.check_new_fence, for the principal that holds the subtree.
create or replace function fence.lock_write_tokens(
    p_resources text[], p_tokens bigint[], p_wait boolean, out covering text[], out locked text[])
language plpgsql
as $$
declare
    v_needed text[] := '{}'; -- resources that need a fence, and may have none
    v_made   text[];
begin
    covering := '{}';
    if exists (select from fence.subtrees s where s.open and s.granted_token = any (p_tokens)) then
        covering := array(
            select s.name from fence.subtrees s
            where s.open and s.granted_token = any (p_tokens)
                and s.name = any (array(select a from unnest(p_resources) r, unnest(fence.ancestors(r)) a))
            order by s.name for share);
        -- A resource below that was never granted itself has no fence yet.
        v_needed := array(
            select c.resource from unnest(p_resources, p_tokens) as c (resource, token)
            where exists (
                select from fence.subtrees s
                where s.name = any (covering) and s.name = any (fence.ancestors(c.resource))
                    and s.granted_token = c.token));
    end if;
    if exists (select from fence.policies p where p.authority = 'external') then
        -- A resource whose tokens another lock service issues has no grant that would have made its fence.
        v_needed := v_needed || array(
            select c.resource from unnest(p_resources, p_tokens) as c (resource, token), fence.policy_for(c.resource) p
            where p.authority = 'external' and c.token is not null);
    end if;
    if cardinality(v_needed) > 0 then
        with made as (
            insert into fence.fences (resource)
            -- An INSERT that conflicts with a fence would wait for the transaction that has changed it.
            select distinct n collate "C" from unnest(v_needed) n
            where (select true from fence.fences f where f.resource = n limit 1) is null
            order by n collate "C"
            on conflict do nothing
            returning resource
        )
        select array_agg(m.resource) into v_made from made m;
        if v_made is not null then
            perform fence.note_unused(v_made); -- the write may yet be rejected
            perform fence.check_new_fence(m.principal), fence.note_new_fence(m.principal)
            from (
                select distinct c.resource, l.principal
                from unnest(p_resources, p_tokens) as c (resource, token), fence.subtrees s, fence.leases l
                where c.resource = any (v_made) and s.name = any (covering)
                    and s.name = any (fence.ancestors(c.resource)) and s.granted_token = c.token
                    and (l.lock, l.fencing_token) = (s.name, s.granted_token)) m;
        end if;
    end if;

    if p_wait then
        locked := array(
            select f.resource from fence.fences f where f.resource = any (p_resources) order by f.resource for update);
    else
        locked := array(
            select f.resource from fence.fences f where f.resource = any (p_resources)
            order by f.resource for update skip locked);
    end if;

    if exists (
        select from (select unnest(v_needed) except select unnest(locked)) as m (n)
        where (p_wait or not exists (select from fence.fences f where f.resource = n)))
    then
        raise exception 'a fence that was never used was deleted' using errcode = 'serialization_failure';
    end if;
end
$$;
