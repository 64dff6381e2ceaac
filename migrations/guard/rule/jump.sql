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
-- Invariant: called before fence.mint, with the fence locked. The identity is locked after fences, so there is no cycle.
-- P2 depends on this.
--
-- Raises LF006 if another database has taken over from this one (fence.supersede).
create or replace function fence.jump() returns void
language plpgsql
as $$
declare
    v_lineage record;
    v_now     timestamptz;
begin
    perform from fence.minted_here();
    if found then
        return;
    end if;

    perform from fence.database_identity for update;
    v_lineage := fence.lineage();
    if v_lineage.superseded_by_system is not null then
        raise exception 'timeline % of system % has taken over from this database',
            v_lineage.superseded_by_timeline, v_lineage.superseded_by_system using errcode = 'LF006';
    elsif v_lineage.newest_token is not null then -- another transaction has jumped
        return;
    end if;

    v_now := clock_timestamp();
    perform setval('fence.tokens', greatest(
        (select last_value from fence.tokens) + (1::bigint << 32),
        floor(extract(epoch from v_now - timestamptz '2025-01-01 00:00:00Z') * (1 << 20))::bigint
    ) + floor(random() * (1 << 7))::bigint);
    update fence.database_identity i
    set system_identifier = r.system_identifier, timeline = r.timeline, tokens_oid = r.tokens_oid,
        started_at = r.started_at, jumps = i.jumps + 1, jumped_at = v_now
    from fence.running_database() r;
end
$$;
