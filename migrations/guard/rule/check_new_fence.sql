-- fence.check_new_fence(principal): the principal may make another fence. A fence stays for ever once its name was
-- granted or written, so a principal that uses ever new names would fill the disk: it may make about 10,000,000
-- (fence.note_new_fence). The principal '' is not bounded: its gateway asks for no credential, and trusts its callers.
--
-- Raises LF007 beyond the bound. docs/security.md says how an operator allows more.
create or replace function fence.check_new_fence(p_principal text) returns void
language plpgsql stable set enable_seqscan = off
as $$
begin
    if exists (select from fence.fences_made m where m.principal = p_principal and m."full") then
        raise exception 'the principal has made about ten million fences, as many as one may: use names that were used '
            'before, or have an operator allow more' using errcode = 'LF007';
    end if;
end
$$;
