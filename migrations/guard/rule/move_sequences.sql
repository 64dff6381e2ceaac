-- fence.move_sequences() moves the sequences past the numbers that the tables have (fence.sequences_behind), if this
-- database is not the one that issued the last token: a copy that logical replication made would give numbers again. It
-- is for fence.jump, and for functions that insert such a number and mint no token. As fence.jump does, it changes
-- sequences only, and keeps nothing locked.
create or replace function fence.move_sequences() returns void
language plpgsql
as $$
begin
    perform from fence.minted_here();
    if found then
        return;
    end if;
    perform from fence.sequences_behind();
    if not found then
        return;
    end if;
    begin
        perform pg_advisory_xact_lock(1718511207, 0);
        perform setval(b.sequence, b.newest) from fence.sequences_behind() b;
        raise exception 'unlock' using errcode = 'LF100';
    exception
        when sqlstate 'LF100' then
            null; -- the sequences stay
    end;
end
$$;
