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
