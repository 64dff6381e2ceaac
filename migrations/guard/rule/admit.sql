-- fence.admit(resources, tokens, sequences, lease_ids, digests, locked, wait) → a ruling per write token, in order.
--
-- The rule: the verdict of fence.rule on the fence, and beside it policies, lease_ids and retries. A write token says: "I
-- write to this resource with this token (and sequence; null counts as 0)". digest is the content of the write, which
-- identifies a retry of the last accepted numbered write. locked are the fences that the caller has locked
-- (fence.lock_write_tokens).
--
-- A subtree lease may write to any resource below its name, whose fence has adopted its token by now. So what is admitted
-- is admitted by the fence alone. A rejection shows the newest of its token and of the subtree leases on the names above.
--
-- ruling  verdict   admitted, or the code of the first step that failed; busy: the fence is not locked and wait is
--                   false, so nothing is decided
--         reason    of token_stale: superseded, released, reused, shared; of busy, what it would be; otherwise ''
--         replayed  the write token repeats the last accepted write of its fence: do not apply it, return the first
--                   answer again. Only if this is true of every token of a write; otherwise the verdict holds.
--         granted_token, last_token, last_sequence, last_version  the fence
--
-- wait is null for a look without the locks: locked does not count then, nor is a fence needed that
-- fence.lock_write_tokens would make. Only its rejections hold (fence.guard_by_rule).
--
-- Locks nothing. An earlier statement locked the fences: a snapshot taken before the wait for a lock would be stale. A
-- rejection holds without a lock, because it changes nothing: it is the answer at the moment of the snapshot. So does a
-- replay. Does not raise the fence, and step 7 is decided by the data (fence.apply_operations). A resource occurs once
-- in a call.
--
-- Raises 40001 if wait is true and a write is admitted whose fence is not locked: the fence was made, or granted again,
-- while the statement waited. Sent again, the statement locks it.
create or replace function fence.admit(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_locked text[], p_wait boolean)
returns fence.ruling[]
language plpgsql
as $$
declare
    v_policies boolean;
    v_cluster  boolean := exists (select from fence.cluster);
    v_unlocked text[] := case when p_locked = p_resources then '{}'
        else array(select r from unnest(p_resources) r except select l from unnest(p_locked) l) end;
    v_rulings  fence.ruling[];
begin
    v_policies := exists (select from fence.policies);
    v_rulings := array(
        select row(judged.verdict, judged.reason, judged.replayed,
            f.granted_token, f.last_token, f.last_sequence, f.last_version)::fence.ruling
        from unnest(p_resources, p_tokens, p_sequences, p_lease_ids, p_digests) with ordinality
            as c (resource, token, sequence, lease_id, digest, n)
        left join lateral (
            select f.*, coalesce(f.adopted_token, f.granted_token) as newest, f.open or f.adopted_token is not null as admits
            from fence.fences f where f.resource = c.resource limit 1
        ) stored on true
        left join lateral (
            select * from fence.policy_for(c.resource) where v_policies
        ) policy on true
        cross join lateral (
            -- A policy that was set after the fences were locked may find no fence here, and without one nothing is
            -- admitted.
            select coalesce(policy.rule = 'same_token', false) as same_token,
                (p_wait is null or stored.resource is not null) and coalesce(policy.authority = 'external', false)
                    as external,
                coalesce(policy.require_lease_id, false) as require_lease_id,
                coalesce(policy.require_live_lease, false) as require_live_lease
        ) p
        left join lateral (
            select a.subtree_token, a.open and a.granted_token = a.subtree_token as open from fence.fences a
            where (stored.admits and stored.newest = c.token) is not true and position('/' in c.resource) > 0
                and a.resource = any (fence.ancestors(c.resource)) and a.subtree_token > coalesce(stored.newest, 0)
            order by a.subtree_token desc limit 1
        ) above on true
        cross join lateral (
            -- A fence that is locked has not adopted the token of this subtree lease, which was granted after this write
            -- began: no client that could present it knows it yet.
            select coalesce(above.subtree_token, stored.newest, 0) as granted_token,
                case when above.subtree_token is null then coalesce(stored.admits, false)
                    else above.open and (p_wait is null or c.resource = any (v_unlocked)) end as open,
                coalesce(stored.last_token, 0) as last_token, coalesce(stored.last_sequence, 0) as last_sequence,
                coalesce(stored.last_version, 0) as last_version
        ) f
        cross join lateral (
            select split_part(r.said, ' ', 1) as verdict, split_part(r.said, ' ', 2) as reason
            from (
                select fence.rule(c.token, c.sequence, p.same_token, p.external,
                    f.granted_token, f.open, f.last_token, f.last_sequence) as said
                offset 0
            ) r
        ) stepped
        cross join lateral (
            select case
                when v_cluster and stored.resource is null and fence.is_elsewhere(c.resource)
                    then 'elsewhere' -- judged by the same snapshot: between two, a name may come
                when stepped.verdict <> 'admitted'
                    then stepped.verdict
                when not p.external and (c.lease_id is not null or p.require_lease_id)
                        and c.lease_id is distinct from (
                            select l.lease_id from fence.leases_of(c.resource, c.token) l)
                    then 'lease_mismatch' -- step 5
                when not p.external and p.require_live_lease
                        and not exists (
                            select from fence.leases_of(c.resource, c.token) l
                            where l.ended_at is null and l.expires_at > clock_timestamp())
                    then 'lease_expired' -- step 6
                when not p_wait and c.resource = any (v_unlocked) and stored.resource is not null
                    then 'busy'
                else 'admitted'
            end as verdict
        ) ruled
        cross join lateral (
            select ruled.verdict,
                case when stepped.reason = 'closed' then coalesce((
                        select 'shared' from fence.leases_of(c.resource, c.token) l where l.mode = 'shared'), 'released')
                    else stepped.reason end as reason,
                coalesce(
                    (c.token, c.sequence) = (f.last_token, f.last_sequence) and c.digest = stored.last_digest,
                    false) as replayed
        ) judged
        order by c.n);
    if v_cluster and 'elsewhere' = any (array(select u.verdict from unnest(v_rulings) as u (verdict))) then
        raise exception 'a name is at another node of the cluster' using errcode = 'LF008';
    end if;
    if p_wait and cardinality(v_unlocked) > 0 and exists (
        select from unnest(p_resources, v_rulings) as u (resource, verdict, reason, replayed)
        where u.verdict = 'admitted' and not u.replayed and u.resource = any (v_unlocked))
    then
        raise exception 'a fence was granted while the write waited' using errcode = 'serialization_failure';
    end if;
    return v_rulings;
end
$$;

-- fence.leases_of(resource, token) → the lease whose token this is: that of the name, or of a subtree above. The planner
-- inlines it.
create or replace function fence.leases_of(p_resource text, p_token bigint) returns setof fence.leases
language sql stable
as $$
    select l.* from fence.leases l
    where l.lock = any (fence.ancestors(p_resource) || p_resource) and l.fencing_token = p_token
        and (l.lock = p_resource or l.scope = 'subtree')
$$;

-- fence.lock_write_tokens(resources, tokens, wait, look) → the fences that were locked for these write tokens, in the
-- order of locks (fence.lock_fence).
--
-- A statement that writes calls it once, for all its tokens, before it locks any other fence: fence.transact does, and
-- fence.write. A second call could wait for a lower name, and so deadlock. A resource may repeat.
--
-- look  leave out the fences that reject all of these tokens now: a rejection needs no lock, and waits for none
--
-- A fence that was made while this waited is not among them; nor, if wait is false, is one that another transaction has
-- locked.
--
-- Adopts tokens: if the token is above that of the resource's fence, and it is that of the newest subtree lease above, and
-- that is open, then the fence takes it over (adopted_token), and decides by itself from then on. It is made if missing.
-- The fence of the subtree lease is locked shared meanwhile. So a newer grant, on its name or on one above or below, which
-- changes that fence, waits for this transaction, and then finds what it has adopted (fence.grant_lease). Or this finds the
-- change.
--
-- Makes the missing fences of resources whose tokens another lock service issues, too.
--
-- Raises 40001 if the sweep deleted such a fence between its look-up and its lock (fence.sweep_unused): sent again, the
-- statement makes it again. Raises LF007, see fence.check_new_fence, for the principal that holds the subtree; LF008 as
-- fence.check_here does, for a resource without a fence.
create or replace function fence.lock_write_tokens(
    p_resources text[], p_tokens bigint[], p_wait boolean, p_look boolean default false)
returns text[]
language plpgsql
as $$
declare
    v_adopting text[]; -- resources that may adopt
    v_adopted  bigint[]; -- the tokens
    v_from     text[]; -- the names of the subtree leases
    v_needed   text[] := '{}'; -- resources that need a fence, and may have none
    v_made     text[];
    v_locked   text[];
    v_name     record;
begin
    perform fence.check_all_here(p_resources);
    if exists (
        select from unnest(p_resources, p_tokens) as c (resource, token)
        where c.token > coalesce((
            select coalesce(f.adopted_token, f.granted_token) from fence.fences f where f.resource = c.resource), 0))
        or exists (select from fence.policies p where p.authority = 'external')
    then
        select array_agg(c.resource), array_agg(c.token), array_agg(a.resource) into v_adopting, v_adopted, v_from
        from unnest(p_resources, p_tokens) as c (resource, token)
        join fence.fences a on a.resource = any (fence.ancestors(c.resource))
        where a.open and a.granted_token = c.token and a.subtree_token = c.token
            and c.token > coalesce((
                select coalesce(f.adopted_token, f.granted_token) from fence.fences f where f.resource = c.resource), 0);
        -- A resource whose tokens another lock service issues has no grant that would have made its fence.
        v_needed := coalesce(v_adopting, '{}') || array(
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
                select distinct u.resource, l.principal
                from unnest(v_adopting, v_adopted, v_from) as u (resource, token, above)
                join fence.leases l on l.lock = u.above and l.fencing_token = u.token
                where u.resource = any (v_made)) m;
        end if;
    end if;

    if v_adopting is not null then
        v_locked := '{}';
        for v_name in
            select u.name, bool_or(u.written) as written
            from (
                select unnest(v_from) as name, false as written
                union all
                select f.resource, true from fence.fences f
                where f.resource = any (p_resources)
                    and (not p_look or f.open and f.granted_token = any (p_tokens) or f.adopted_token = any (p_tokens)
                    or f.resource = any (v_needed))) u
            group by u.name order by u.name collate "C"
        loop
            if not v_name.written then
                perform from fence.fences f where f.resource = v_name.name for share;
            elsif p_wait then
                perform from fence.fences f where f.resource = v_name.name for update;
            else
                perform from fence.fences f where f.resource = v_name.name for update skip locked;
            end if;
            if found and v_name.written then
                v_locked := v_locked || v_name.name;
            end if;
        end loop;
        update fence.fences f set adopted_token = u.token, admitted_in = null
        from unnest(v_adopting, v_adopted, v_from) as u (resource, token, above)
        join fence.fences a on a.resource = u.above
        where f.resource = u.resource and f.resource = any (v_locked)
            and coalesce(f.adopted_token, f.granted_token) < u.token
            and a.open and a.granted_token = u.token and a.subtree_token = u.token
            and not exists (
                select from fence.fences n
                where n.resource = any (fence.ancestors(u.resource)) and n.subtree_token > u.token);
    elsif p_wait then
        v_locked := array(
            select f.resource from fence.fences f
            where f.resource = any (p_resources)
                and (not p_look or f.open and f.granted_token = any (p_tokens) or f.adopted_token = any (p_tokens)
                    or f.resource = any (v_needed))
            order by f.resource for update);
    else
        v_locked := array(
            select f.resource from fence.fences f
            where f.resource = any (p_resources)
                and (not p_look or f.open and f.granted_token = any (p_tokens) or f.adopted_token = any (p_tokens)
                    or f.resource = any (v_needed))
            for update skip locked);
    end if;

    -- To start the query would cost as much as to lock a fence.
    if cardinality(v_needed) > 0 then
        if exists (select from unnest(v_needed) n where not exists (select from fence.fences f where f.resource = n)) then
            raise exception 'a fence that was never used was deleted' using errcode = 'serialization_failure';
        end if;
    end if;
    return v_locked;
end
$$;
