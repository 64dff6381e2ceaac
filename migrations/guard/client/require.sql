-- fence.require(valid, message) raises 22023 with the message, unless valid is true.
create or replace function fence.require(p_valid boolean, p_message text) returns void
language plpgsql
as $$
begin
    if p_valid is not true then
        raise exception '%', p_message using errcode = 'invalid_parameter_value';
    end if;
end
$$;
