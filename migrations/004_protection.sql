-- Protection of tables: the proof of who changes it.

-- Who calls fence.protect or fence.unprotect for a table. What these call runs with the rights of the schema's owner, and
-- nothing there tells whose code called: session_user is the user of the session, which may run a function of another
-- role, in an index or a trigger for example. A table owner may insert table_id only, so the default names the role whose
-- code it is. fence.check_table_owner deletes the row before it does anything.
create table fence.table_callers (
    table_id  oid,
    caller    name not null default current_user,
    called_in xid8 not null default pg_current_xact_id()
);

-- The name that the table had when it was protected. It is what is left of a table that was dropped.
alter table fence.protected_tables add column table_name text collate "C";

update fence.protected_tables p
set table_name = format('%s.%s', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = p.table_id;
