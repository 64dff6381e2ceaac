-- fence.guard_known(table) is called before a statement writes to a protected table, in a transaction that has
-- set its token (fence.set_token). It guards the transaction, if the resource is known before the rows are: it was named
-- with the token, or the template has no columns. So the transaction locks the fence before the rows, as one does that calls fence.guard
-- first, and does not deadlock with it.
--
-- Leaves rejections and invalid settings to fence.check_rows: the statement may write no row. Raises 40001 as
-- fence.guard_by_settings does.
create or replace function fence.guard_known(p_table oid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_given    record := fence.given_token();
    v_resource text := nullif(current_setting('fencegate.resource', true), '');
begin
    if v_resource is null then -- not in one expression, as in fence.check_rows
        select p.template into v_resource
        from fence.protected_tables p where p.table_id = p_table and p.template !~ '[{]';
    end if;
    if v_given.token is not null and v_resource is not null
        and not exists (select from fence.admitted a where a.resource = v_resource)
    then
        perform fence.guard_by_settings(v_resource, v_given.token, v_given.sequence, v_given.lease_id, true);
    end if;
end
$$;
