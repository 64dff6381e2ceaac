-- fence.fast_path_admits(fence, token, sequence) → whether a put with nothing but a token is admitted, if there is no
-- policy. A fence whose newest grant may have a hold_until is left to fence.admit. The planner inlines it.
create or replace function fence.fast_path_admits(
    p_fence fence.fences, p_token bigint, p_sequence bigint)
returns boolean
language sql immutable
return not p_fence.limited and 'admitted' = fence.rule(
        p_token, p_sequence, false, false,
        p_fence.granted_token, p_fence.open, p_fence.last_token, p_fence.last_sequence);
