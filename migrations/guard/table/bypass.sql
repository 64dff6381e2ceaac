-- fence.bypass(protected) → how writes pass by the triggers of a registered table, and the statements that end it;
-- null: they do not. The table was dropped, another one has its name (fence.namesake), or it belongs to a table that is
-- written in its place. The statements keep the template, the mode and what inserts need.
create or replace function fence.bypass(p_protected fence.protected_tables) returns text
language plpgsql stable -- which keeps the plan: in SQL it would be planned for each table
as $$
begin
    return (
        select case
            when o.other is null and c.oid is null
                then format('%s was dropped: call fence.protect for a new table of that name, or fence.unprotect(%s)',
                    p_protected.table_name, p_protected.table_id::oid)
            else case when o.other is null then fence.table_problem(c.oid)
                    else p_protected.table_name || ' is another table now, which is not protected' end
                || ': ' || concat_ws('; ',
                    case when t.id = c.oid then (
                        select string_agg(format('alter table %s no inherit %s', i.inhrelid::regclass,
                            i.inhparent::regclass), '; ' order by i.inhrelid, i.inhparent)
                        from pg_inherits i where c.oid in (i.inhrelid, i.inhparent)) end,
                    case when t.id = c.oid or fence.table_problem(t.id) is null
                            and not exists (select from fence.protected_tables p where p.table_id = t.id)
                        then format('select fence.protect(%L, %L, %L, %L)', t.id, p_protected.template, p_protected.mode,
                            p_protected.inserts) end,
                    case when t.id is distinct from c.oid
                        then format('select fence.unprotect(%L)', p_protected.table_id) end)
        end
        from fence.namesake(p_protected) as o (other)
        left join pg_class c on c.oid = p_protected.table_id
        cross join lateral (
            select coalesce(pg_partition_root(coalesce(o.other, c.oid)), o.other, c.oid)::regclass as id) t);
end
$$;
