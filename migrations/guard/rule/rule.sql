-- fence.rule(token, sequence, same_token, external, granted_token, open, last_token, last_sequence) → 'admitted', or the code of the
-- first of the steps 1 to 4 that fails.
--
-- The only code that compares tokens to decide a write. A claim says: "I write with this token and sequence" (null counts as 0);
-- same_token and external are its policy's; the others are the fence as it stands. Steps 5 and 6, which concern leases, are fence.admit's;
-- the seventh is the data's.
--
-- One expression without a query in it, so that the planner puts it in the place of the call.
create or replace function fence.rule(
    token bigint, sequence bigint, same_token boolean, external boolean,
    granted_token bigint, open boolean, last_token bigint, last_sequence bigint) returns text
language sql immutable
as $$
    select case
        when token is null
            then 'token_required' -- step 1
        when not external and token > granted_token
            then 'token_unknown' -- step 2
        when not external and (token < granted_token or not open)
            then 'token_stale' -- step 3
        when same_token and sequence is null and token < last_token
            then 'token_stale' -- step 4
        when not (same_token and sequence is null)
                and (token, coalesce(sequence, 0)) <= (last_token, last_sequence)
            then 'token_stale' -- step 4
        else 'admitted'
    end
$$;
