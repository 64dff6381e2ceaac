-- fence.wanted_triggers(id, table) → the triggers that protect a table: on which table or partition, their name and
-- function, their definition as pg_get_triggerdef shows it, while the search_path has no schema of a user, and when they
-- fire: always, or replica (in a session that applies replicated rows only).
--
-- Statement triggers with transition tables check most tables: they cost least, and a statement of many rows once. But
-- a partition has none of the triggers of its table but those for each row. Nor do the apply workers of logical
-- replication fire others. So a partitioned table has a row trigger, which PostgreSQL also makes on each partition, at
-- once or when it is attached; and other tables have one for replicated rows only. A condition (WHEN) would do the same as
-- ENABLE REPLICA, but PostgreSQL would parse it for each statement.
-- TRUNCATE has no such row triggers: each partition needs its own. Before a statement, fence.guard_statement checks nothing:
-- it lets the fence be locked before the rows. A statement on a partition itself does without.
create or replace function fence.wanted_triggers(p_id integer, p_table regclass)
returns table (on_table regclass, name name, function_name text, definition text, fires text)
language sql stable
as $$
    select w.on_table, w.name, f.function_name,
        format('CREATE TRIGGER %I ' || w.events || ' EXECUTE FUNCTION %s(%s)', w.name, w.on_table, f.function_name,
            case when w.name = 'fencegate_guard' and p.template !~ '[{]' then '''one resource''' end),
        case w.name when 'fencegate_replica' then 'replica' else 'always' end
    from (
        select p_table as on_table, w.name, w.kind, w.events
        from pg_class c, (values
            (false, 'fencegate_insert'::name, 'insert',
                'AFTER INSERT ON %s REFERENCING NEW TABLE AS fencegate_new FOR EACH STATEMENT'),
            (false, 'fencegate_update', 'update', 'AFTER UPDATE ON %s '
                'REFERENCING OLD TABLE AS fencegate_old NEW TABLE AS fencegate_new FOR EACH STATEMENT'),
            (false, 'fencegate_delete', 'delete',
                'AFTER DELETE ON %s REFERENCING OLD TABLE AS fencegate_old FOR EACH STATEMENT'),
            (false, 'fencegate_replica', 'row', 'AFTER INSERT OR DELETE OR UPDATE ON %s FOR EACH ROW'),
            (true, 'fencegate_row', 'row', 'AFTER INSERT OR DELETE OR UPDATE ON %s FOR EACH ROW')
        ) as w (partitioned, name, kind, events)
        where c.oid = p_table and w.partitioned = (c.relkind = 'p')
        union all
        select p_table, 'fencegate_guard', null, 'BEFORE INSERT OR DELETE OR UPDATE ON %s FOR EACH STATEMENT'
        union all
        select t.relid, 'fencegate_truncate', null, 'BEFORE TRUNCATE ON %s FOR EACH STATEMENT'
        from fence.with_partitions(p_table) as t (relid)
    ) w
    cross join lateral (
        select case w.name when 'fencegate_truncate' then 'fence.check_truncate'
            when 'fencegate_guard' then 'fence.guard_statement'
            else 'fence.check_' || p_id || '_' || w.kind end as function_name) f
    left join fence.protected_tables p on p.id = p_id
$$;
