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
    v_error    record;
    v_ruling   fence.ruling := row('truncate', '', false, 0, 0, 0, 0);
begin
    select p.template, p.mode into v_template, v_mode from fence.protected_tables p where p.table_id = v_root for share;
    if not found then
        raise exception '% is not protected, but has a trigger that protects it', tg_relid::regclass
            using errcode = 'object_not_in_prerequisite_state', hint = 'Call fence.protect or fence.unprotect.';
    elsif v_template !~ '[{]' then
        if not exists (select from fence.admitted a where a.resource = v_template) then
            perform fence.check_rows(tg_relid, array[v_template], v_mode = 'observe');
        end if;
    elsif v_mode = 'observe' then
        perform fence.report_rejection(v_template, null, null, v_ruling, v_root);
    else
        v_error := fence.rejection_error(v_template, null, null, v_ruling, v_root);
        raise exception using errcode = v_error.state, message = v_error.message, detail = v_error.detail,
            hint = v_error.hint;
    end if;
    return null;
end
$$;
