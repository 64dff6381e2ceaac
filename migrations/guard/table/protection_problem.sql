-- fence.protection_problem(id, table, template) → what is wrong with the protection of a table, for the view
-- fence.protected; null if nothing is, or for a template that the role may not use (fence.may_use). A right that was granted later is one (fence.replaceable_by).
--
-- A table that another session has locked so that nobody can write to it has no problem: this waits 10 ms at most.
create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '10ms'
as $$
declare
    v_problem text := (select fence.bypass(p) from fence.protected_tables p where p.id = p_id);
begin
    if not exists (
        select from fence.protected_tables p
        where p.id = p_id and p.table_id = p_table and p.template = p_template and fence.may_use(p.template))
    then
        return null;
    end if;
    if v_problem is not null then
        return v_problem;
    end if;
    v_problem := 'a right is missing: ' || fence.missing_usage(p_table, p_template);
    if v_problem is not null then
        return v_problem;
    end if;
    select w.problem into v_problem
    from fence.wanted_triggers(p_id, p_table) w where w.problem is not null order by w.name, w.on_table limit 1;
    if v_problem is null then
        select 'the trigger functions are not those of the template any more: call fence.protect again'
        into v_problem
        from fence.protected_tables r
        cross join fence.trigger_functions(r) f
        left join lateral (
            select * from pg_proc p
            where p.pronamespace = 'fence'::regnamespace and p.proname = format('check_%s_%s', p_id, f.kind) limit 1
        ) p on true
        where r.id = p_id and p.prosrc is distinct from f.body
        limit 1;
    end if;
    if v_problem is null then
        select format('%s, the owner of %s, cannot attach partitions: call fence.protect again',
            c.relowner::regrole, p_table)
        into v_problem
        from pg_class c
        where c.oid = p_table and c.relkind = 'p'
            and not has_function_privilege(c.relowner, format('fence.check_%s_row()', p_id), 'execute');
    end if;
    if v_problem is null then
        v_problem := fence.replaceable_by(p_table);
    end if;
    return v_problem;
exception
    when lock_not_available then
        return null;
    when invalid_parameter_value or undefined_column or datatype_mismatch then
        return sqlerrm;
end
$$;
