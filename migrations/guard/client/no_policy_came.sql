-- fence.no_policy_came() raises 40001 if there is a policy: it was set while a guard without policies waited.
create or replace function fence.no_policy_came() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from fence.policies) then
        raise exception 'a policy was set while the transaction waited' using errcode = 'serialization_failure';
    end if;
end
$$;
