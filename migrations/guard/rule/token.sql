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

-- fence.jump_mark() → the mark of the jump from the database that issued the last token (fence.database_identity) to the
-- running one; null if they are the same. fence.jumped has the mark of the last jump. Each recorded jump and each
-- fence.accept_database changes the mark, so no jump is taken for an earlier one.
create or replace function fence.jump_mark() returns bigint
language sql stable
as $$
    select hashtextextended(format('%s %s %s %s %s %s %s %s %s %s',
        i.system_identifier, i.timeline, i.tokens_oid, extract(epoch from i.started_at), i.jumps,
        extract(epoch from i.accepted_at),
        r.system_identifier, r.timeline, r.tokens_oid, extract(epoch from r.started_at)), 0)
    from fence.running_database() r left join fence.database_identity i on true
    where (i.system_identifier, i.timeline, i.tokens_oid, i.started_at)
        is distinct from (r.system_identifier, r.timeline, r.tokens_oid, r.started_at)
$$;

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

-- fence.minted_here() → the row of fence.database_identity if this database is the one that issued the last token, and
-- was not started again since. None: fence.jump is needed before the next token, unless that jump was made and is not
-- recorded yet.
--
-- The system identifier is in a file, which costs more to read than the rest of a grant. It cannot have changed where
-- the postmaster is the same. The planner inlines the function.
create or replace function fence.minted_here() returns setof fence.database_identity
language sql stable
as $$
    select i.* from fence.database_identity i
    where (i.timeline, i.tokens_oid, i.started_at)
            = (fence.running_timeline(), to_regclass('fence.tokens')::oid, pg_postmaster_start_time())
        and (i.superseded_system, i.superseded_timeline) is distinct from (i.system_identifier, i.timeline)
$$;

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

-- fence.sequences_behind() → the sequences of this schema that have not given the newest number of the column that they
-- number, and that number. Logical replication copies rows, and no sequences.
create or replace function fence.sequences_behind() returns table (sequence regclass, newest bigint)
language plpgsql
as $$
declare
    v_query text;
begin
    for sequence, v_query in
        select pg_get_serial_sequence(a.attrelid::regclass::text, a.attname),
            format('select max(%I) from %s', a.attname, a.attrelid::regclass)
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'fence'::regnamespace and a.attidentity <> ''
    loop
        execute v_query into newest;
        if newest > coalesce(pg_sequence_last_value(sequence), 0) then
            return next;
        end if;
    end loop;
end
$$;
