-- fence.raised_sequence(fence, token, sequence) → the last_sequence of the fence after an admitted write with this token
-- and sequence (null counts as 0). Under the policy same_token an unnumbered write may follow a numbered one: the fence
-- never falls. The planner inlines it.
create or replace function fence.raised_sequence(p_fence fence.fences, p_token bigint, p_sequence bigint) returns bigint
language sql immutable
return case when p_fence.last_token = p_token then greatest(p_fence.last_sequence, coalesce(p_sequence, 0))
        else coalesce(p_sequence, 0) end;
