-- fence.wanted_triggers(id, table) → the triggers that protect a table: on which table or partition, their name and
-- function, the rest of the statement that makes them, and their pg_trigger.tgtype.
--
-- Statement triggers with transition tables check most tables: they cost least, and a statement of many rows once. But
-- a partition has none of the triggers of its table but those for each row. Nor do the apply workers of logical
-- replication fire others. So a partitioned table has a row trigger, which PostgreSQL also makes on each partition, at
-- once or when it is attached; and other tables have one that fires only in a session that applies replicated rows.
-- TRUNCATE has no such row triggers: each partition needs its own.
create or replace function fence.wanted_triggers(p_id integer, p_table regclass)
returns table (on_table regclass, name name, function_name text, events text, type integer)
language sql stable
as $$
    select p_table, w.name, format('fence.check_%s_%s', p_id, w.kind), w.events, w.type
    from pg_class c, (values
        (false, 'fencegate_insert', 'insert', 'after insert on %s referencing new table as fencegate_new',
            4),
        (false, 'fencegate_update', 'update', 'after update on %s '
            'referencing old table as fencegate_old new table as fencegate_new', 16),
        (false, 'fencegate_delete', 'delete', 'after delete on %s referencing old table as fencegate_old',
            8),
        (false, 'fencegate_replica', 'row', 'after insert or update or delete on %s '
            'for each row when (pg_catalog.current_setting(''session_replication_role'') '
            'operator(pg_catalog.=) ''replica'')', 29),
        (true, 'fencegate_row', 'row', 'after insert or update or delete on %s for each row', 29)
    ) as w (partitioned, name, kind, events, type)
    where c.oid = p_table and w.partitioned = (c.relkind = 'p')
    union all
    select t.relid, 'fencegate_truncate', 'fence.check_truncate', 'before truncate on %s', 34
    from fence.with_partitions(p_table) as t (relid)
$$;
