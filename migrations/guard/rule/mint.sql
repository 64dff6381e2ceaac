-- fence.mint(newest) → a token greater than newest and than every token of the sequence before it.
--
-- newest  the greatest token on the fence, which the caller has locked: the order of tokens on a name
--         is then the order of its grants, and a sequence that lags behind the fence (it is not
--         transactional, and a failover may lose it) can't hand out a token twice.
--
-- Raises LF002 when there are no tokens below 2^53 left, 2200H when it is the sequence that has none. Nobody sees the token before the commit.
create or replace function fence.mint(p_newest bigint) returns bigint
language plpgsql
as $$
declare
    v_token bigint;
begin
    perform fence.jump();
    v_token := greatest(nextval('fence.tokens'), p_newest + 1);
    if v_token > 9007199254740991 then
        raise exception 'no fencing tokens below 2^53 are left' using errcode = 'LF002';
    end if;
    return v_token;
end
$$;
