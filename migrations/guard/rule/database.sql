-- fence.lineage() → what a gateway compares with the databases that it has seen before (store/postgres/lineage.go). All
-- is null on a standby.
--
-- accepted_at             see fence.accept_database
-- superseded_by_system,   the database that has taken over from this one, if a gateway has said so here
-- superseded_by_timeline  (fence.supersede)
-- newest_token            the last value of the token sequence; null if it will jump before the next (fence.jump)
create or replace function fence.lineage(
    out system_identifier bigint, out timeline integer, out tokens_oid oid, out accepted_at timestamptz,
    out superseded_by_system bigint, out superseded_by_timeline integer, out newest_token bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_running  record;
    v_identity fence.database_identity;
begin
    if pg_is_in_recovery() then
        return;
    end if;
    v_running := fence.running_database();
    system_identifier := v_running.system_identifier;
    timeline := v_running.timeline;
    tokens_oid := v_running.tokens_oid;
    select i.* into v_identity from fence.database_identity i;
    accepted_at := v_identity.accepted_at;
    if (v_identity.superseded_system, v_identity.superseded_timeline) = (system_identifier, timeline) then
        superseded_by_system := v_identity.superseded_by_system;
        superseded_by_timeline := v_identity.superseded_by_timeline;
    end if;
    if coalesce(fence.jump_mark() = (select j.last_value from fence.jumped j), true) then
        newest_token := (select t.last_value from fence.tokens t);
    end if;
end
$$;

-- fence.running_database() → the identity of this database: the cluster's system identifier, its timeline, the oid of
-- the token sequence, which changes when a dump is restored, even in place, and the start of the postmaster, which
-- changes when files are put back.
-- Fails (55000) on a standby.
create or replace function fence.running_database(
    out system_identifier bigint, out timeline integer, out tokens_oid oid, out started_at timestamptz)
language plpgsql
as $$
begin
    system_identifier := (select c.system_identifier from pg_control_system() c);
    timeline := fence.running_timeline();
    tokens_oid := to_regclass('fence.tokens')::oid; -- not a regclass constant, which a plan would keep
    started_at := pg_postmaster_start_time();
end
$$;

-- fence.running_timeline() → the timeline of this database. It is read from the name of the current WAL file:
-- pg_control_checkpoint() still shows the old one right after a promotion. Fails (55000) on a standby, which cannot
-- grant anything anyway.
create or replace function fence.running_timeline() returns integer
language sql volatile
return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;

-- fence.supersede(by_system, by_timeline, accepted) marks this database: a gateway has seen that another one has taken
-- over from it. From then on nothing is granted here (fence.jump), and gateways do not use it. The mark is about this
-- system identifier and timeline: it is void once the database is promoted again, and in copies that are.
--
-- accepted  when the database was accepted as of what the gateway has seen of it, in us; 0: never. If an operator has
--           accepted it since (fence.accept_database), it is not marked.
--
-- It does not wait for standbys, which follow the other database by now, nor long for a grant that waits for them.
create or replace function fence.supersede(p_by_system bigint, p_by_timeline integer, p_accepted bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '200', true);
    update fence.database_identity i
    set superseded_system = r.system_identifier, superseded_timeline = r.timeline,
        superseded_by_system = p_by_system, superseded_by_timeline = p_by_timeline, superseded_at = clock_timestamp()
    from fence.running_database() r
    where (i.superseded_system, i.superseded_timeline) is distinct from (r.system_identifier, r.timeline)
        and coalesce((extract(epoch from i.accepted_at) * 1000000)::bigint, 0) = p_accepted;
end
$$;

-- fence.accept_database(above) makes gateways use this database again, although another one had taken over from it. It
-- is for operators: docs/runbooks/FencegateDatabaseWentBack.md says when. What was granted and written in the other
-- database is given up. Tokens jump past all that were issued until now, and past above: the newest token of the other database, if it is
-- known. → a value below the next token.
--
-- Raises 22003 if no tokens above are left.
create or replace function fence.accept_database(above bigint default 0) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.commit_durably();
    update fence.database_identity i
    set accepted_at = clock_timestamp(), timeline = 0, -- so tokens jump
        superseded_system = null, superseded_timeline = null, superseded_by_system = null,
        superseded_by_timeline = null, superseded_at = null;
    perform fence.note_action('database_accepted', '', jsonb_build_object('above', above));
    return setval('fence.tokens', greatest((select t.last_value from fence.tokens t), above));
end
$$;
