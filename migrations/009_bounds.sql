-- Each guard and each acquire asks whether there is such a policy at all.
create index policies_external on fence.policies (prefix) where authority = 'external';
create index policies_principal_owner on fence.policies (prefix) where require_principal_owner;

-- The mark of the last jump of the tokens (fence.jump_mark): a sequence, because all see it at once and no rollback takes
-- it back.
create sequence fence.jumped as bigint minvalue -9223372036854775808 start 0;
