-- fence.check_guard_arguments(resource, token, sequence, digest) raises 22023 if an argument of fence.guard is invalid.
-- A token that is null is none of these: it is rejected as token_required.
create or replace function fence.check_guard_arguments(
    p_resource text, p_token bigint, p_sequence bigint, p_digest bytea) returns void
language plpgsql
as $$
declare
    v_problem text := case
        when p_resource is null then 'the resource is null'
        when not fence.is_name(p_resource)
            then format('the resource %s is not a name: 1 to 512 bytes in segments between slashes, '
                'none of them empty, . or ..', fence.quote_begin(p_resource))
        when p_token < 1 then format('the token is %s, it must be a positive integer', p_token)
        when p_token > 9007199254740991
            then format('the token is %s, it must be below 2^53, because JSON cannot hold greater integers exactly; '
                'subtract a constant from another service''s greater numbers', p_token)
        when p_sequence < 0 then format('the sequence is %s, it must not be negative', p_sequence)
        when octet_length(p_digest) > 64
            then format('the digest has %s bytes, it must have at most 64', octet_length(p_digest))
        when p_digest is not null and p_sequence is null then 'a digest needs a sequence'
    end;
begin
    if v_problem is not null then
        raise exception '%', v_problem using errcode = 'invalid_parameter_value';
    end if;
end
$$;
