-- fence.jump() makes the token sequence jump if this database is not the one that issued the last token, or was started
-- again since.
--
-- A promoted standby or a restored backup may lack grants that the lost primary gave out. It has another system
-- identifier or another timeline. A dump that was restored in the same cluster has another token sequence. Older files
-- that were put back differ from the lost ones only in the start of the postmaster (fence.running_database).
--
-- The jump goes past 2^32 tokens more than this database knows of, and past 2^20 for every second since 2025. So while
-- fewer than a million grants a second are given, every token that another history issued until now is lower. That
-- includes a sibling standby that was promoted earlier, took the same timeline number and is unknown here. The random
-- part, below 2^7, separates two databases that jump at the same instant. It is worth a tenth of a millisecond: a
-- sibling that jumped before that is below. 2^53 tokens last beyond the year 2290 this way.
--
-- The caller's transaction may stay open, so the jump is of nobody's transaction: it sets sequences only, which all see
-- at once and which no rollback takes back. First those of columns (fence.move_sequences) and the tokens, then
-- fence.jumped, by which others see that this jump was made. An advisory lock keeps two callers from jumping at once, or
-- one could set the tokens back below those that the other has minted meanwhile. The subtransaction that took it is
-- rolled back, so nothing stays locked. In the log of the database, which a crash cuts off at some point, all come before
-- the commit of any grant that follows. fence.note_jump then records the jump in fence.database_identity.
--
-- Invariant: called before fence.mint. P2 depends on this.
--
-- Raises LF006 if another database has taken over from this one (fence.supersede).
create or replace function fence.jump() returns void
language plpgsql
as $$
declare
    v_lineage record;
    v_mark    bigint;
begin
    perform from fence.minted_here();
    if found then
        return;
    end if;

    v_lineage := fence.lineage();
    if v_lineage.superseded_by_system is not null then
        raise exception 'timeline % of system % has taken over from this database',
            v_lineage.superseded_by_timeline, v_lineage.superseded_by_system using errcode = 'LF006';
    elsif v_lineage.newest_token is not null then -- another transaction has jumped
        return;
    end if;

    v_mark := fence.jump_mark();
    begin
        perform pg_advisory_xact_lock(1718511207, 0);
        if (select j.last_value from fence.jumped j) <> v_mark then
            perform fence.move_sequences();
            perform setval('fence.tokens', greatest(
                (select t.last_value from fence.tokens t) + (1::bigint << 32),
                floor(extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00Z') * (1 << 20))::bigint
            ) + floor(random() * (1 << 7))::bigint);
            perform setval('fence.jumped', v_mark);
        end if;
        raise exception 'unlock' using errcode = 'LF100';
    exception
        when sqlstate 'LF100' then
            null; -- the sequences stay
    end;
end
$$;
