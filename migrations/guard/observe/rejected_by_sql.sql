-- fence.rejected_by_sql() → the number of rejections by SQL, by code, those among them whose transaction was rolled back.
-- It reads the sequences of fence.count_rejection. The first value of each is 0.
create or replace function fence.rejected_by_sql() returns table (code text, rejections bigint)
language sql
as $$
    select c.code, case when c.is_called then c.last_value + 1 else 0 end
    from (
        select 'token_required' as code, s.last_value, s.is_called from fence.rejected_by_sql_token_required s
        union all select 'token_unknown', s.last_value, s.is_called from fence.rejected_by_sql_token_unknown s
        union all select 'token_stale', s.last_value, s.is_called from fence.rejected_by_sql_token_stale s
        union all select 'token_reused', s.last_value, s.is_called from fence.rejected_by_sql_token_reused s
        union all select 'lease_mismatch', s.last_value, s.is_called from fence.rejected_by_sql_lease_mismatch s
        union all select 'lease_expired', s.last_value, s.is_called from fence.rejected_by_sql_lease_expired s
        union all select 'truncate', s.last_value, s.is_called from fence.rejected_by_sql_truncate s
    ) c
$$;
