-- fence.running_timeline() → the timeline of this database. It is read from the name of the current WAL file:
-- pg_control_checkpoint() still shows the old one right after a promotion. Fails (55000) on a standby, which cannot
-- grant anything anyway.
create or replace function fence.running_timeline() returns integer
language sql volatile
return ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
