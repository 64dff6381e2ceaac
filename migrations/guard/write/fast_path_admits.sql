-- fence.fast_path_admits(fence, token, sequence, same_token) → whether a put with nothing but a token is admitted, if
-- its policy says nothing but same_token (fence.write_policies). A fence whose newest grant may have a hold_until is
-- left to fence.admit. The planner inlines it.
create or replace function fence.fast_path_admits(
    p_fence fence.fences, p_token bigint, p_sequence bigint, p_same_token boolean default false)
returns boolean
language sql immutable
return not p_fence.limited and 'admitted' = fence.rule(
        p_token, p_sequence, p_same_token, false,
        p_fence.granted_token, p_fence.open, p_fence.last_token, p_fence.last_sequence);
