-- fence.claim_query(jobs, jobs_max, condition, order_by) → the statement by which fence.claim finds rows: it locks up to
-- $1 of them that nobody holds and that are not among $2, and returns the arrays of their resources and of the rows.
--
-- The statement shows the template, so it raises 42501 as fence.check_readable does. Raises 22023 for a bad argument, also for a table that is not protected, or whose template has no column.
create or replace function fence.claim_query(p_jobs regclass, p_jobs_max integer, p_condition text, p_order_by text)
returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_template text := (select p.template from fence.protected_tables p where p.table_id = p_jobs and fence.check_readable(p_jobs));
    v_resource text;
    v_columns  text;
begin
    perform fence.require(p_jobs_max between 1 and 1000, format('jobs_max is %L, it must be 1 to 1000', p_jobs_max));
    perform fence.require(v_template is not null, format('%s is not protected: call fence.protect first', p_jobs));
    v_columns := (
        select string_agg(format('j.%I', c.name[1]), ', ')
        from regexp_matches(v_template, '[{]([^{}]+)[}]', 'g') as c (name));
    perform fence.require(v_columns is not null, format(
        'the template %L of %s has no column: a claim needs a fence for each row', v_template, p_jobs));
    v_resource := fence.resource_expression(p_jobs, v_template, 'j');
    return format($query$
        select pg_catalog.array_agg(c.resource), pg_catalog.array_agg(c.job)
        from (
            select %1$s as resource, pg_catalog.to_jsonb(j) as job
            from %2$s as j
            where (%3$s) and not fence.is_held(%1$s) and (%1$s) operator(pg_catalog.<>) all ($2)
            order by %4$s
            limit $1
            for no key update of j skip locked) c
        $query$, v_resource, p_jobs, coalesce(p_condition, 'true'), coalesce(p_order_by, v_columns));
end
$$;
