-- fence.protected: the protected tables. problem says what keeps rows from being checked, such as a disabled trigger;
-- null: nothing.
create or replace view fence.protected as
    select p.table_id as table_name, p.template, p.mode, p.protected_at,
        fence.protection_problem(p.id, p.table_id, p.template) as problem,
        p.http, p.http_role, p.inserts
    from fence.protected_tables p;
