-- fence.trigger_functions(table, template) → the functions of the triggers of a protected table: their kind, which is
-- the end of their name, and their body. They are made for the table, so that a write is checked by planned statements.
--
-- Statement triggers check each resource of a statement once, by its transition tables (fencegate_old, fencegate_new).
<<<<<<< HEAD
-- The row trigger is for partitioned tables and for replication (fence.wanted_triggers). All compare the resource of
-- a row with fence.admitted, and pass what is missing there to fence.check_rows.
--
-- Names of columns and literals come from the owner of the table, and the functions run with the rights of fencegate. So
-- each name is quoted, and the caller quotes each body as a whole. Texts are compared in the collation "C", which tells
-- all of them apart.
create or replace function fence.trigger_functions(p_table regclass, p_template text)
returns table (kind text, body text)
language plpgsql stable
as $$
declare
    v_all   text := 'true';
    v_moved text := 'false';
    v_new   text := fence.resource_expression(p_table, p_template, 'new');
    v_old   text := fence.resource_expression(p_table, p_template, 'old');
begin
    select coalesce(string_agg(format('%I%s as %1$I', c.name, c.collation), ', '), v_all),
        coalesce(string_agg(format('old.%I%s is distinct from new.%1$I%2$s', c.name, c.collation), ' or '), v_moved)
    into v_all, v_moved
    from (
        select distinct t.column_name as name,
            case when t.type in ('text'::regtype, 'varchar'::regtype) then ' collate "C"' else '' end as collation
        from fence.template_columns(p_table, p_template) t where t.literal is null) c;
    return query
    select t.event, format($body$
        #variable_conflict use_column
        declare
            v_missing text[] := array(
                select w.resource
                from (select %s as resource from (select distinct %s from %s) r) w
                where (select true from fence.admitted a where a.resource = w.resource limit 1) is null);
        begin
            if v_missing <> '{}' then
                perform fence.check_rows(tg_relid, v_missing);
=======
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
>>>>>>> c1372ae0c224a5d009616c2cda62e170acb0d4c7
            end if;
            return null;
        end
        $body$, fence.resource_expression(p_table, p_template, 'r'), v_all, t.rows)
    from (values
        ('insert', 'fencegate_new'),
        ('update', format('(select %1$s from fencegate_old union all select %1$s from fencegate_new) u', v_all)),
        ('delete', 'fencegate_old')) as t (event, rows)
    union all
    select 'row', format($body$
        #variable_conflict use_column
        begin
            if tg_op <> 'DELETE' and not exists (select from fence.admitted a where a.resource = %1$s) then
                perform fence.check_rows(tg_relid, array[%1$s]);
            end if;
            if (tg_op = 'DELETE' or tg_op = 'UPDATE' and (%3$s))
                and not exists (select from fence.admitted a where a.resource = %2$s)
            then
                perform fence.check_rows(tg_relid, array[%2$s]);
            end if;
            return null;
        end
        $body$, v_new, v_old, v_moved);
end
$$;
