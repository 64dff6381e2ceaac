-- fence.probe() commits as little as there can be, as durably as what is acknowledged: it returns when the database can
-- accept writes. It also writes a temporary file of 256 kB, beyond its work_mem, where the database's tables are. That
-- finds a full disk (53100) that the commit does not need.
--
-- It locks nothing, and leaves some 120 bytes in the write-ahead log.
create or replace function fence.probe() returns void
language plpgsql set search_path = pg_catalog, pg_temp set work_mem = '64kB' set temp_tablespaces = ''
as $$
begin
    perform fence.commit_durably();
    perform count(*) from unnest(array_fill(repeat('x', 8192), array[32]));
    perform pg_logical_emit_message(true, 'fencegate', '');
end
$$;
