-- fence.make_triggers(table) makes the triggers of a registered table: in the mode "observe" those with a problem, mostly
-- none, which locks nothing; in the mode "enforce" all, which waits for transactions that have written unchecked. → the
-- statements that say when they fire, and one that drops the trigger of inserts if these are free. fence.protect runs
-- those as its caller, who must own the table. Raises 42501 for a caller who does not.
create or replace function fence.make_triggers(p_table regclass) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_trigger record;
    v_enable  text[] := '{}';
begin
    perform fence.check_table_owner(p_table);
    for v_trigger in
        select w.* from fence.protected_tables p, fence.wanted_triggers(p.id, p_table) w
        where p.table_id = p_table and (p.mode = 'enforce' or w.problem is not null)
        order by w.name, w.on_table
    loop
        execute regexp_replace(v_trigger.definition, '^CREATE', 'CREATE OR REPLACE');
        v_enable := v_enable || format('alter table %s %s trigger %I', v_trigger.on_table, v_trigger.fires,
            v_trigger.name);
    end loop;
    if exists (
        select from fence.protected_tables p join pg_trigger t on t.tgrelid = p.table_id
        where p.table_id = p_table and p.inserts = 'free' and t.tgname = 'fencegate_insert'
            and not fence.may_be_too_long(p_table, p.template))
    then
        v_enable := v_enable || format('drop trigger fencegate_insert on %s', p_table);
    end if;
    return v_enable;
end
$$;

-- fence.wanted_triggers(id, table) → the triggers that protect a table: on which table or partition, their name and
-- function, their definition as pg_get_triggerdef shows it, while the search_path has no schema of a user, and when they
-- fire: "enable always", "enable replica" (in a session that applies replicated rows only), or "disable". problem says
-- how the trigger that is there differs; null: it does not.
--
-- Statement triggers with transition tables check most tables: they cost least, and a statement of many rows once. But
-- a partition has none of the triggers of its table but those for each row. Nor do the apply workers of logical
-- replication fire others. So a partitioned table has a row trigger, which PostgreSQL also makes on each partition, at
-- once or when it is attached; and other tables have one for replicated rows only. A condition (WHEN) would do the same as
-- ENABLE REPLICA, but PostgreSQL would parse it for each statement.
-- A table that becomes a partition, or the child of another, is written through the other table, which fires only its
-- row triggers. PostgreSQL refuses both where a row trigger has a transition table. So one is there for that alone: it is
-- disabled, and PostgreSQL's message shows its name, which says what to do.
-- TRUNCATE has no such row triggers: each partition needs its own. Before a statement, fence.guard_statement checks nothing:
-- it lets the fence be locked before the rows. A statement on a partition itself does without.
create or replace function fence.wanted_triggers(p_id integer, p_table regclass)
returns table (on_table regclass, name name, function_name text, definition text, fires text, problem text)
language sql stable
as $$
    select w.on_table, w.name, f.function_name, d.definition, d.fires, x.problem
    from (
        select p_table as on_table, w.name, w.kind, w.events
        from pg_class c, (values
            (false, 'fencegate_insert'::name, 'insert',
                'AFTER INSERT ON %s REFERENCING NEW TABLE AS fencegate_new FOR EACH STATEMENT'),
            (false, 'fencegate_update', 'update', 'AFTER UPDATE ON %s '
                'REFERENCING OLD TABLE AS fencegate_old NEW TABLE AS fencegate_new FOR EACH STATEMENT'),
            (false, 'fencegate_delete', 'delete',
                'AFTER DELETE ON %s REFERENCING OLD TABLE AS fencegate_old FOR EACH STATEMENT'),
            (false, 'fencegate_unprotect_first', 'delete',
                'AFTER DELETE ON %s REFERENCING OLD TABLE AS fencegate_old FOR EACH ROW'),
            (false, 'fencegate_replica', 'row', 'AFTER INSERT OR DELETE OR UPDATE ON %s FOR EACH ROW'),
            (true, 'fencegate_row', 'row', 'AFTER INSERT OR DELETE OR UPDATE ON %s FOR EACH ROW')
        ) as w (partitioned, name, kind, events)
        where c.oid = p_table and w.partitioned = (c.relkind = 'p') and not (w.name = 'fencegate_insert' and exists (
            select from fence.protected_tables p
            where p.id = p_id and p.inserts = 'free' and not fence.may_be_too_long(p_table, p.template)))
            and not (w.name = 'fencegate_unprotect_first' and exists (
                select from pg_inherits i where i.inhrelid = p_table)) -- PostgreSQL refuses it there
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
    cross join lateral (
        select format('CREATE TRIGGER %I ' || w.events || ' EXECUTE FUNCTION %s(%s)', w.name, w.on_table, f.function_name,
                case when w.name = 'fencegate_guard' and p.template !~ '[{]' then '''one resource''' end) as definition,
            case w.name when 'fencegate_replica' then 'enable replica' when 'fencegate_unprotect_first' then 'disable'
                else 'enable always' end as fires) d
    -- The row trigger of a partitioned table differs, too, where that on a partition does. The subqueries keep plans from
    -- reading the whole catalog, whatever the statistics are. pg_get_triggerdef sees what was dropped since the snapshot.
    left join lateral (
        select format('trigger %s on %s %s', w.name, r.relid, case
            when t.oid is null then 'is missing'
            when t.tgenabled = e.enabled then 'has another definition'
            when t.tgenabled = 'D' then 'is disabled'
            when e.enabled = 'A' then 'does not always fire'
            when e.enabled = 'R' then 'does not fire for replicated rows alone'
            else 'is not disabled' end) as problem
        from fence.with_partitions(w.on_table) as r (relid)
        cross join (
            select case d.fires when 'enable always' then 'A' when 'disable' then 'D' else 'R' end as enabled) e
        left join lateral (
            select * from pg_trigger t where t.tgrelid = r.relid and t.tgname = w.name limit 1) t on true
        where (r.relid = w.on_table or w.name = 'fencegate_row') and (t.tgenabled is distinct from e.enabled
            or r.relid = w.on_table and pg_get_triggerdef(t.oid) is distinct from d.definition)
        order by r.relid
        limit 1) x on true
$$;

-- fence.with_partitions(table) → the table and its partitions, at all levels. Unlike pg_partition_tree, it takes no
-- lock on them, so it never waits for an ALTER TABLE.
create or replace function fence.with_partitions(p_table regclass) returns setof regclass
language sql stable
as $$
    with recursive tree (relid) as (
        select p_table::oid
        union all
        select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.relid)
    select t.relid::regclass from tree t
$$;

-- fence.may_be_too_long(table, template) → whether resources of the rows can have more than the 512 bytes of a name: a
-- column of the template has a text. For free inserts, which nothing else checks.
create or replace function fence.may_be_too_long(p_table regclass, p_template text) returns boolean
language sql stable
as $$
    select exists (
        select from regexp_matches(p_template, '[{]([^{}]+)[}]', 'g') as c (name)
        join pg_attribute a on a.attrelid = p_table and a.attname = c.name[1]
        join pg_type t on t.oid = a.atttypid and t.typcategory = 'S')
$$;
