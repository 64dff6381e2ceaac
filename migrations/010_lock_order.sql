-- Writes lock first and judge then: these are two functions now.

drop function if exists fence.admit(text[], bigint[], bigint[], uuid[], bytea[], boolean);
drop function if exists fence.write_ruled(
    integer[], text[], bigint[], bigint[], uuid[], bytea[], text[], text[], bytea[], text[], bigint[], boolean);

-- A write looks up whether its token is that of an open subtree.
create index subtrees_open on fence.subtrees (granted_token) where open;
