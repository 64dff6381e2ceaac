-- fence.claim_query(jobs, jobs_max, owner_id, ttl_ms, condition, order_by, tried) checks the arguments of fence.claim → the
-- statement by which that finds rows: it locks up to jobs_max of them that nobody holds and whose resources are not among
-- tried, and returns the arrays of the resources and of the rows.
--
-- condition and order_by refer to the table by its own name, see no name but those of its columns, and may end in a
-- comment. The statement has no parameters, which they could use.
--
-- Raises 22023 for a bad argument, also for a table that is not protected, or whose template has no column; 25000 and
-- 25006, see fence.check_lease_call; 54000 if the transaction can lock no other name, see fence.check_gates. The
-- statement shows the template, so it raises 42501 as fence.check_readable does.
create or replace function fence.claim_query(
    p_jobs regclass, p_jobs_max integer, p_owner_id text, p_ttl_ms integer, p_condition text, p_order_by text,
    p_tried text[])
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_template text := (select p.template from fence.protected_tables p where p.table_id = p_jobs and fence.check_readable(p_jobs));
    v_resource text;
    v_columns  text;
begin
    perform fence.check_lease_call('any', p_owner_id);
    perform fence.check_ttl(p_ttl_ms);
    perform fence.require(p_jobs_max between 1 and 1000, format('jobs_max is %L, it must be 1 to 1000', p_jobs_max));
    perform fence.require(v_template is not null, format('%s is not protected: call fence.protect first', p_jobs));
    v_columns := (
        select string_agg(format('%s.%I', p_jobs, c.name[1]), ', ')
        from regexp_matches(v_template, '[{]([^{}]+)[}]', 'g') as c (name));
    perform fence.require(v_columns is not null, format(
        'the template %L of %s has no column: a claim needs a fence for each row', v_template, p_jobs));
    if p_tried = '{}' then
        perform fence.check_gates(v_template);
    end if;
    v_resource := fence.resource_expression(p_jobs, v_template, p_jobs::text);
    return format($query$
        select pg_catalog.array_agg(%1$s), pg_catalog.array_agg(pg_catalog.to_jsonb(c.*))
        from (
            select %2$s.*
            from %2$s
            where (%3$s
                ) and not fence.is_held(%4$s) and (%4$s) operator(pg_catalog.<>) all (%5$L::pg_catalog.text[])
            order by %6$s
            limit %7$s
            for no key update of %8$I skip locked) c
        $query$, fence.resource_expression(p_jobs, v_template, 'c'), p_jobs, coalesce(p_condition, 'true'),
        v_resource, p_tried, coalesce(p_order_by, v_columns), p_jobs_max,
        (select r.relname from pg_class r where r.oid = p_jobs));
end
$$;
