-- fence.table_rows(name) → an estimate of the number of rows of a table or an index, as the planner makes it: as dense
-- as when it was last vacuumed or analyzed, and as large as it is now. 0 if it never was.
create or replace function fence.table_rows(p_name regclass) returns bigint
language sql
as $$
    select case when c.reltuples > 0 and c.relpages > 0
        then (c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::integer))::bigint
        else 0 end
    from pg_class c where c.oid = p_name
$$;
