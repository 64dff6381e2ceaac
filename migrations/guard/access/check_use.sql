-- fence.check_use(name) raises 42501 unless the role of the session may use the name (fence.may_use). The error is the same
-- for a name that exists and for one that does not (P15).
create or replace function fence.check_use(p_name text) returns void
language plpgsql
as $$
begin
    if not fence.may_use(p_name) then
        raise exception 'the role % may not use the name %', session_user, fence.quote_begin(p_name)
            using errcode = 'insufficient_privilege', hint = format(
                'An administrator allows it and all names below it: select fence.allow_names(%L, %s).',
                quote_ident(session_user), fence.quote_begin(p_name));
    end if;
end
$$;
