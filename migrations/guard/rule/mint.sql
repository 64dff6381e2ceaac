-- fence.mint(newest) → a token greater than newest and than every token that the sequence gave before.
--
-- newest  the greatest token on the fence, which the caller has locked. So the order of tokens on a name is the order
--         of its grants. A sequence that lags behind the fence (it is not transactional, and a failover may lose
--         values) cannot give the same token twice.
--
-- Called after fence.jump. Raises LF002 if no tokens below 2^53 are left, 2200H if the sequence has none left. Nobody
-- sees the token before the commit.
create or replace function fence.mint(p_newest bigint) returns bigint
language plpgsql
as $$
declare
    v_token bigint := greatest(nextval('fence.tokens'), p_newest + 1);
begin
    if v_token > 9007199254740991 then
        raise exception 'no fencing tokens below 2^53 are left' using errcode = 'LF002';
    end if;
    return v_token;
end
$$;
