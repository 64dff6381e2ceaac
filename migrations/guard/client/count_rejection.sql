-- fence.count_rejection(code) counts a rejection by SQL, although its transaction may roll back.
create or replace function fence.count_rejection(p_code text) returns void
language sql volatile
as $$
    select nextval(('fence.rejected_by_sql_' || p_code)::regclass)
$$;
