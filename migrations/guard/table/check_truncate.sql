-- fence.check_truncate() is the trigger before a TRUNCATE of a protected table or of one of its partitions. It takes
-- away the rows of all resources. So it needs a template without columns, and an admitted transaction.
--
-- Raises 40001 if the registration has changed since the snapshot of the transaction.
create or replace function fence.check_truncate() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_root     oid := coalesce(pg_partition_root(tg_relid), tg_relid);
    v_template text;
    v_mode     text;
    v_table    text;
    v_ruling   fence.ruling := row('truncate', '', false, 0, 0, 0, 0);
begin
    select p.template, p.mode, format('%s.%s', n.nspname, c.relname) into v_template, v_mode, v_table
    from fence.protected_tables p
    join pg_class c on c.oid = p.table_id
    join pg_namespace n on n.oid = c.relnamespace
    where p.table_id = v_root
    for share of p;
    if not found then
        raise exception '% is not protected, but has a trigger that protects it', tg_relid::regclass
            using errcode = 'object_not_in_prerequisite_state', hint = 'Call fence.protect or fence.unprotect.';
    elsif v_template !~ '[{]' then
        if not exists (select from fence.admitted a where a.resource = v_template) then
            perform fence.check_rows(tg_relid, array[v_template], v_mode = 'observe');
        end if;
    elsif v_mode = 'observe' then
        perform fence.report_rejection(v_template, null, null, v_ruling, v_table);
    else
        perform fence.raise_rejection(v_template, null, null, v_ruling, v_table);
    end if;
    return null;
end
$$;
