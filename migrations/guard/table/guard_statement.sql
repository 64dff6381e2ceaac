-- fence.guard_statement() is the trigger before each statement that writes to a protected table: see fence.guard_known. It
-- has an argument if the template has no columns. Most transactions have not set fencegate.token. To set search_path would
-- cost them more than the rest, so all names are qualified instead.
create or replace function fence.guard_statement() returns trigger
language plpgsql security definer
as $$
begin
    if pg_catalog.current_setting('fencegate.token', true) operator(pg_catalog.<>) ''
        and (tg_nargs operator(pg_catalog.>) 0
            or pg_catalog.current_setting('fencegate.resource', true) operator(pg_catalog.<>) '')
    then
        perform fence.guard_known(tg_relid);
    end if;
    return null;
end
$$;
