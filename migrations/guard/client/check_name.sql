-- fence.check_name(field, name) raises 22023 if the name is null, and 23514 (constraint name_is_path) if it is no name.
create or replace function fence.check_name(p_field text, p_name text) returns void
language plpgsql
as $$
begin
    perform fence.require(p_name is not null, p_field || ' is null');
    perform p_name::fence.name;
exception
    when check_violation then
        raise exception '% is not a valid name: %', p_field, left(quote_literal(p_name), 600)
            using errcode = 'check_violation', constraint = 'name_is_path',
            hint = 'A name has 1 to 512 bytes, in segments separated by "/". '
                'No segment is empty, "." or "..", and none has a control character.';
end
$$;
