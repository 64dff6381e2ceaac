-- fence.trigger_functions(id, table, template) → the SQL statements that make the functions of the triggers of a
-- protected table. They are made for the table, so that a write is checked by planned statements.
--
-- Statement triggers check each resource of a statement once, by its transition tables (fencegate_old, fencegate_new).
-- The row trigger is for partitioned tables and for replication (fence.trigger_statements). All compare the resource of
-- a row with fence.admitted, and pass what is missing there to fence.check_rows. To set search_path would cost as much
-- as the check, so all names are qualified instead, operators too.
create or replace function fence.trigger_functions(p_id integer, p_table regclass, p_template text) returns text[]
language plpgsql stable
as $$
declare
    v_columns text := (
        select string_agg(distinct quote_ident(s.column_name), ', ') from fence.template_segments(p_template) s);
    v_all     text := coalesce(v_columns, 'true');
    v_new     text := fence.resource_expression(p_table, p_template, 'new');
    v_old     text := fence.resource_expression(p_table, p_template, 'old');
    v_moved   text := coalesce((
        select string_agg(distinct format('(old.%1$I operator(pg_catalog.=) new.%1$I) is not true', s.column_name), ' or ')
        from fence.template_segments(p_template) s where s.column_name is not null), 'false');
    v_made    text[];
begin
    v_made := array(
        select format($function$
            create or replace function fence.check_%s_%s() returns trigger
            language plpgsql security definer
            set enable_seqscan = off
            as $body$
            declare
                v_missing pg_catalog.text[] := array(
                    select w.resource
                    from (select %s as resource from (select distinct %s from %s) r) w
                    where (select true from fence.admitted a where a.resource operator(pg_catalog.=) w.resource limit 1)
                        is null);
            begin
                if v_missing operator(pg_catalog.<>) '{}' then
                    perform fence.check_rows(tg_relid, v_missing);
                end if;
                return null;
            end
            $body$
            $function$, p_id, t.event, fence.resource_expression(p_table, p_template, 'r'), v_all, t.rows)
        from (values
            ('insert', 'fencegate_new'),
            ('update', format('(select %1$s from fencegate_old union all select %1$s from fencegate_new) u', v_all)),
            ('delete', 'fencegate_old')) as t (event, rows));
    return v_made || format($function$
        create or replace function fence.check_%s_row() returns trigger
        language plpgsql security definer
        set enable_seqscan = off
        as $body$
        begin
            if tg_op operator(pg_catalog.<>) 'DELETE'
                and not exists (select from fence.admitted a where a.resource operator(pg_catalog.=) (%s))
            then
                perform fence.check_rows(tg_relid, array[%s]);
            end if;
            if (tg_op operator(pg_catalog.=) 'DELETE' or tg_op operator(pg_catalog.=) 'UPDATE' and (%s))
                and not exists (select from fence.admitted a where a.resource operator(pg_catalog.=) (%s))
            then
                perform fence.check_rows(tg_relid, array[%s]);
            end if;
            return null;
        end
        $body$
        $function$, p_id, v_new, v_new, v_moved, v_old, v_old);
end
$$;
