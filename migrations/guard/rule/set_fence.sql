-- fence.set_fence(resource, token, sequence, reason, principal, address) → the last accepted token and sequence before.
-- From now on the fence reads as if a write with this token and sequence was its last one: greater ones are admitted, all
-- others are rejected. The reason is kept in fence.audit; see fence.note_action for principal and address.
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
    update fence.fences f
    set last_token = p_token, last_sequence = p_sequence, last_digest = '', open = false,
        granted_token = greatest(f.granted_token, (
            select max(s.granted_token) from fence.subtrees s where s.name = any (fence.ancestors(p_resource))))
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
