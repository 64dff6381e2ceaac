-- fence.count_rejection(code) counts a rejection by SQL, although its transaction may roll back.
--
-- The SDK asks fence.try_guard for the outcome of a transaction whose COMMIT got no answer. It sets fencegate.counted for
-- these questions.
create or replace function fence.count_rejection(p_code text) returns void
language sql volatile
as $$
    select nextval(('fence.rejected_by_sql_' || p_code)::regclass)
    where coalesce(current_setting('fencegate.counted', true), '') <> 'on'
$$;
