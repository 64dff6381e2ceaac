-- fence.rule(token, sequence, same_token, external, granted_token, open, last_token, last_sequence) → 'admitted', or
-- the code of the first of the steps 1 to 4 that fails. After token_stale follows, as a second word, the reason:
-- superseded, reused, or closed, which fence.admit explains by the lease.
--
-- The only code that compares tokens to decide a write. token and sequence (null counts as 0) are the write's,
-- same_token and external its policy's; the others are the fence. fence.admit decides steps 5 and 6, which concern
-- leases; the data decides step 7. One expression without a query, so that the planner inlines it.
create or replace function fence.rule(
    token bigint, sequence bigint, same_token boolean, external boolean,
    granted_token bigint, open boolean, last_token bigint, last_sequence bigint) returns text
language sql immutable
return case
        when token is null
            then 'token_required' -- step 1
        when not external and token > granted_token
            then 'token_unknown' -- step 2
        when not external and (token < granted_token or not open)
            then case when token < greatest(granted_token, last_token) then 'token_stale superseded'
            else 'token_stale closed' end -- step 3
        when same_token and sequence is null and token < last_token
            then 'token_stale superseded' -- step 4
        when not (same_token and sequence is null)
                and (token, coalesce(sequence, 0)) <= (last_token, last_sequence)
            then case when token = last_token then 'token_stale reused' else 'token_stale superseded' end -- step 4
        else 'admitted'
    end;

-- fence.raised_sequence(fence, token, sequence) → the last_sequence of the fence after an admitted write with this token
-- and sequence (null counts as 0). Under the policy same_token an unnumbered write may follow a numbered one: the fence
-- never falls. The planner inlines it.
create or replace function fence.raised_sequence(p_fence fence.fences, p_token bigint, p_sequence bigint) returns bigint
language sql immutable
return case when p_fence.last_token = p_token then greatest(p_fence.last_sequence, coalesce(p_sequence, 0))
        else coalesce(p_sequence, 0) end;
