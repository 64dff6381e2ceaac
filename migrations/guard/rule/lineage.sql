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
