-- fence.wanted_triggers(id, table) → the triggers that protect a table: on which table or partition, their name and
-- function, and the rest of the statement that makes them.
--
-- Statement triggers with transition tables check most tables: they cost least, and a statement of many rows once. But
-- a partition has none of the triggers of its table but those for each row. Nor do the apply workers of logical
-- replication fire others. So a partitioned table has a row trigger, which PostgreSQL also makes on each partition, at
-- once or when it is attached; and other tables have one that fires only in a session that applies replicated rows.
-- TRUNCATE has no such row triggers: each partition needs its own.
create or replace function fence.wanted_triggers(p_id integer, p_table regclass)
returns table (on_table regclass, name name, function_name text, events text)
language sql stable
as $$
    select p_table, w.name, format('fence.check_%s_%s', p_id, w.kind), w.events
    from pg_class c, (values
        (false, 'fencegate_insert', 'insert', 'after insert on %s referencing new table as fencegate_new'),
        (false, 'fencegate_update', 'update', 'after update on %s '
            'referencing old table as fencegate_old new table as fencegate_new'),
        (false, 'fencegate_delete', 'delete', 'after delete on %s referencing old table as fencegate_old'),
        (false, 'fencegate_replica', 'row', 'after insert or update or delete on %s '
            'for each row when (pg_catalog.current_setting(''session_replication_role'') '
            'operator(pg_catalog.=) ''replica'')'),
        (true, 'fencegate_row', 'row', 'after insert or update or delete on %s for each row')
    ) as w (partitioned, name, kind, events)
    where c.oid = p_table and w.partitioned = (c.relkind = 'p')
    union all
    select t.relid, 'fencegate_truncate', 'fence.check_truncate', 'before truncate on %s'
    from (select p_table as relid union select p.relid from pg_partition_tree(p_table) p) t
$$;
