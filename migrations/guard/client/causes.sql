-- fence.causes() → the causes of rejections: code/reason, as of fence.admit and fence.rejection_error. Fewer than 16.
create or replace function fence.causes() returns text[]
language sql immutable
return array['token_required/', 'token_unknown/', 'token_stale/superseded', 'token_stale/released',
    'token_stale/reused', 'token_stale/shared', 'token_stale/max_hold', 'token_reused/', 'lease_mismatch/',
    'lease_expired/', 'truncate/'];
