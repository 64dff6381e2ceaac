-- fence.note_jump() is fence.jump, and records in fence.database_identity that this database issues the tokens from now
-- on. It is for transactions that end at once: gateways call it when they connect, at acquires in batches, and in
-- sweeps. It waits for no other that records the same.
--
-- Raises LF006 as fence.jump does.
create or replace function fence.note_jump() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_locked boolean;
begin
    perform from fence.minted_here();
    if found then
        return;
    end if;
    perform from fence.database_identity for update skip locked;
    v_locked := found;
    perform fence.jump(); -- after the lock, so that the mark is that of the row
    update fence.database_identity i
    set system_identifier = r.system_identifier, timeline = r.timeline, tokens_oid = r.tokens_oid,
        started_at = r.started_at, jumps = i.jumps + 1, jumped_at = clock_timestamp()
    from fence.running_database() r
    where v_locked and fence.jump_mark() is not null;
end
$$;
