-- fence.jump() makes the token sequence jump if this database is not the one that issued the last token.
--
-- A promoted standby or a restored backup may lack grants that the lost primary gave out. It has another system
-- identifier or another timeline. A dump that was restored in the same cluster has another token sequence
-- (fence.running_database).
--
-- The jump goes past 2^32 tokens more than this database knows of, and past 2^20 for every second since 2025. So while
-- fewer than a million grants a second are given, every token that another history issued until now is lower. That
-- includes a sibling standby that was promoted earlier, took the same timeline number and is unknown here. The random
-- part, below 2^7, separates two databases that jump at the same instant. It is worth a tenth of a millisecond: a
-- sibling that jumped before that is below. 2^53 tokens last beyond the year 2290 this way.
--
-- Invariant: called before nextval, with the fence locked. The identity is locked after fences, so there is no cycle.
-- P2 depends on this. Raises nothing of its own.
create or replace function fence.jump() returns void
language plpgsql
as $$
declare
    v_running record := fence.running_database();
    v_now     timestamptz;
begin
    perform from fence.database_identity i
    where (i.system_identifier, i.timeline, i.tokens_oid)
        = (v_running.system_identifier, v_running.timeline, v_running.tokens_oid);
    if found then
        return;
    end if;

    perform from fence.database_identity for update;
    perform from fence.database_identity i
    where (i.system_identifier, i.timeline, i.tokens_oid)
        = (v_running.system_identifier, v_running.timeline, v_running.tokens_oid);
    if found then
        return;
    end if;

    v_now := clock_timestamp();
    perform setval('fence.tokens', greatest(
        (select last_value from fence.tokens) + (1::bigint << 32),
        floor(extract(epoch from v_now - timestamptz '2025-01-01 00:00:00Z') * (1 << 20))::bigint
    ) + floor(random() * (1 << 7))::bigint);
    update fence.database_identity i
    set system_identifier = v_running.system_identifier, timeline = v_running.timeline,
        tokens_oid = v_running.tokens_oid, jumps = i.jumps + 1, jumped_at = v_now;
end
$$;
