-- fence.check_provider(lock) raises LF005 if the policy says that leases on the lock are kept in Redis.
create or replace function fence.check_provider(p_lock text) returns void
language plpgsql
as $$
begin
    if exists (select from fence.policies)
        and exists (select from fence.policy_for(p_lock) p where p.leases <> 'postgres')
    then
        raise exception 'leases on % are kept in Redis: acquire through a gateway', p_lock using errcode = 'LF005';
    end if;
end
$$;
