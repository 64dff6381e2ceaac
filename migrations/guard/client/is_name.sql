-- fence.is_name(text) → whether it is a name of a lock or a resource. The domain fence.name decides.
create or replace function fence.is_name(p_name text) returns boolean
language plpgsql
as $$
begin
    perform p_name::fence.name;
    return p_name is not null;
exception
    when check_violation then
        return false;
end
$$;
