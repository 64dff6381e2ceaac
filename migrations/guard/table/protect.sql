-- fence.protect(table, template, mode, inserts) protects a table: from its commit on, a row can be inserted, updated or deleted
-- only in a transaction that is admitted for the resource of the row (fence.guard), or of both the old and the new row.
--
-- template  names the resource of a row: accounts/{id}, where id is a column; or accounts, one resource for all rows
-- mode      enforce, or observe: what would be rejected is recorded, and nothing is rejected
-- inserts   guarded, or free: anybody may insert rows, for a queue or an outbox; null: as they were, guarded at first
--
-- For owners of the table: it changes the table with the caller's rights, and gives the owner of the schema fence the
-- right to make triggers on it. That owner also needs the right to use the table's schema. Called again, it changes
-- template and mode, and makes missing triggers, such as those for TRUNCATE on partitions that were attached meanwhile.
-- The rows that exist are not changed. Waits for the writers of the table, unless the mode is observe and all triggers
-- are as they should be: then writers have the mode from their next statement on, and for one that they have prepared,
-- from their next transaction on.
--
-- Returns true. Raises what fence.prepare_protection raises, and 42501 for a caller who does not own the table.
create or replace function fence.protect(
    p_table regclass, p_template text, p_mode text default 'enforce', inserts text default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sql text;
begin
    insert into fence.table_callers (table_id) values (p_table);
    foreach v_sql in array fence.prepare_protection(p_table, p_template, p_mode, inserts) loop
        execute v_sql;
    end loop;
    insert into fence.table_callers (table_id) values (p_table);
    foreach v_sql in array fence.make_triggers(p_table) loop
        execute v_sql;
    end loop;
    return true;
end
$$;
