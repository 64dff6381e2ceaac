-- fence.check_actor(principal, scoped) → the principal, which does what an administrator may do.
--
-- scoped  it administers only some names. Then it may have 10,000 entries in fence.audit in a day: it can fill neither
--         the disk nor the log. An administrator of all names is not bounded, nor are the callers without a credential,
--         whose entries the sweep deletes (fence.sweep_audit). Refused accesses do not count.
--
-- Raises LF007 if it has as many.
create or replace function fence.check_actor(p_principal text, p_scoped boolean) returns text
language plpgsql stable set enable_seqscan = off
as $$
declare
    c_entries_max constant integer := 10000;
begin
    if p_scoped and p_principal <> 'anonymous' and clock_timestamp() - interval '1 day' < (
        select a.at from fence.audit a where a.principal = p_principal and a.action <> 'access_refused'
        order by a.at desc offset c_entries_max - 1 limit 1)
    then
        raise exception 'you have taken % actions of an administrator within a day, as many as one that administers '
            'only some names may: try again later', c_entries_max using errcode = 'LF007';
    end if;
    return p_principal;
end
$$;
