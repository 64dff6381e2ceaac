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
