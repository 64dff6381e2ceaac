-- fence.check_text(field, text, bytes_max) raises 22023 unless the text has 1 to bytes_max bytes and no control
-- character. The patterns of functions have no backslash (its meaning depends on the session), so they are made by chr.
create or replace function fence.check_text(p_field text, p_text text, p_bytes_max integer) returns void
language plpgsql
as $$
begin
    perform fence.require(octet_length(p_text) between 1 and p_bytes_max,
        format('%s has %s bytes, it must have 1 to %s', p_field, coalesce(octet_length(p_text), 0), p_bytes_max));
    perform fence.require(
        p_text !~ ('[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']' collate "C"),
        p_field || ' has a control character');
end
$$;
