-- Each guard and each acquire asks whether there is such a policy at all.
create index policies_external on fence.policies (prefix) where authority = 'external';
create index policies_principal_owner on fence.policies (prefix) where require_principal_owner;
