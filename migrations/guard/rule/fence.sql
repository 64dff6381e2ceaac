-- fence.lock_fence(name) → the fence of the name, locked until the end of the transaction; it is made if missing. A later
-- statement makes every decision about a lease: under READ COMMITTED a statement's snapshot is older than the lock that it
-- waited for.
--
-- A caller that does not use the fence notes that (fence.note_unused). While this waits for the row of an unused name,
-- the sweep may delete it; then it is made again.
--
-- Order of locks, here and everywhere: tree locks, fences, leases and sessions; of each kind by name.
--
-- Raises 23514 (constraint name_is_path) if the argument is not a name, LF008 as fence.check_here does.
create or replace function fence.lock_fence(p_name text) returns fence.fences
language plpgsql
as $$
declare
    v_fence fence.fences;
begin
    loop
        select * into v_fence from fence.fences where resource = p_name for update;
        exit when found;
        perform fence.check_here(p_name); -- then this looks for the fence again, which may have come meanwhile
        insert into fence.fences (resource) values (p_name) on conflict do nothing;
    end loop;
    return v_fence;
end
$$;

-- fence.lock_lease(lock, scope) → the fence, locked with all that a call needs to end a lease of this scope; null if there
-- is none. For a subtree, see fence.lock_subtree.
create or replace function fence.lock_lease(p_lock text, p_scope text) returns fence.fences
language plpgsql
as $$
declare
    v_fence fence.fences;
begin
    if p_scope = 'subtree' then
        perform fence.lock_subtree(p_lock, null);
    else
        perform fence.take_tree_lock(p_lock, 'node');
    end if;
    select * into v_fence from fence.fences f where f.resource = p_lock for update;
    return v_fence;
end
$$;

-- fence.close_fence(lock, token): the grant may not write any more, to the name and to names below. If a newer token
-- was granted, the fence stays as it is. If this very transaction was admitted to write (fence.guard), it is not any
-- more. The caller has locked the fence (fence.lock_fence).
create or replace function fence.close_fence(p_lock text, p_token bigint) returns void
language plpgsql
as $$
declare
    v_subtree boolean;
    v_below   text[];
begin
    update fence.fences f set open = false, admitted_in = null
    where f.resource = p_lock and f.granted_token = p_token and f.open
    returning f.subtree_token = f.granted_token into v_subtree;
    if v_subtree then
        v_below := fence.lock_below(p_lock, p_token);
        update fence.fences f set adopted_token = null, admitted_in = null where f.resource = any (v_below);
    end if;
end
$$;

-- fence.set_fence(resource, token, sequence, reason, principal, address) → the last accepted token and sequence before.
-- From now on the fence reads as if a write with this token and sequence was its last one: greater ones are admitted,
-- all others are rejected. The reason is kept in fence.audit; see fence.note_action for principal and address.
--
-- Only for tokens that another lock service issues: after one that was too great, or after its numbers started anew.
-- fencegate's own fences never go back. So no token that fencegate granted before may write again, should the policy
-- change back: the fence counts as granted to the newest of them, and is closed. The digest '' is that of no write: a
-- repeated number is not taken for a write that was accepted (fence.guard_by_rule).
--
-- The gateways forget what they refuse from memory (the channel fence_policies): it may be admissible now.
--
-- Raises LF004 if the policy says that fencegate issues the tokens of the name.
create or replace function fence.set_fence(
    p_resource text, p_token bigint, p_sequence bigint, p_reason text default null,
    p_principal text default null, p_address text default null,
    out last_token bigint, out last_sequence bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences;
begin
    perform fence.commit_durably();
    v_fence := fence.lock_fence(p_resource);
    if not fence.has_external_tokens(p_resource) then
        raise exception 'the tokens of % are issued by fencegate', p_resource using errcode = 'LF004';
    end if;
    perform fence.close_fence(p_resource, v_fence.granted_token);
    update fence.fences f
    set last_token = p_token, last_sequence = p_sequence, last_digest = '', adopted_token = null,
        granted_token = greatest(f.granted_token, fence.granted_above(p_resource))
    where f.resource = p_resource;
    perform fence.note_unused(array[p_resource]); -- without a token it was perhaps never used
    perform pg_notify('fence_policies', '');
    last_token := v_fence.last_token;
    last_sequence := v_fence.last_sequence;
    perform fence.note_action('fence_set', p_resource, jsonb_build_object(
        'last_token', p_token, 'last_sequence', p_sequence, 'previous_token', last_token,
        'previous_sequence', last_sequence, 'reason', p_reason), p_principal, p_address);
end
$$;
