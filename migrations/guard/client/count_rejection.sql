-- fence.count_rejection(code) counts a rejection by SQL, although its transaction may roll back.
--
-- The SDK asks fence.try_guard about a transaction after its end: to record a rejection that raised, which was counted
-- then, or for the outcome of a lost COMMIT. It sets fencegate.counted for these questions.
create or replace function fence.count_rejection(p_code text) returns void
language sql volatile
as $$
    select nextval(('fence.rejected_by_sql_' || p_code)::regclass)
    where coalesce(current_setting('fencegate.counted', true), '') <> 'on'
$$;
