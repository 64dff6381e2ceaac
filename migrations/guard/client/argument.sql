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

-- fence.check_ttl(ttl_ms) raises 22023 unless a lease may have this TTL: 100 ms to 24 h.
create or replace function fence.check_ttl(p_ttl_ms integer) returns void
language plpgsql
as $$
begin
    perform fence.require(p_ttl_ms between 100 and 86400000,
        format('ttl_ms is %L, it must be 100 to 86400000', p_ttl_ms));
end
$$;

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

-- fence.segment(text) → the segment of a resource's name that stands for a value of a column. For applications, too, to
-- compute a resource as the triggers of a protected table do.
--
-- Most values stand for themselves. null is %null, the empty text %empty, . and .. are %2E and %2E%2E; in any other
-- value, each % is %25, each / is %2F, and each control character is the percent-encoding of its UTF-8 bytes. Different
-- values have different segments. The planner inlines it.
create or replace function fence.segment(p_value text) returns text
language sql immutable
return case when p_value !~ ('[%/' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']|^[.]{0,2}$') then p_value
        else fence.escape_segment(p_value) end;

-- fence.escape_segment(text) → fence.segment of a value that does not stand for itself.
create or replace function fence.escape_segment(p_value text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when p_value is null then '%null'
        when p_value = '' then '%empty'
        when p_value in ('.', '..') then replace(p_value, '.', '%2E')
        else (
            select string_agg(
                case when c in ('%', '/') or ascii(c) < 32 or ascii(c) between 127 and 159
                    then '%' || array_to_string(array(
                        select upper(lpad(to_hex(get_byte(bytes, i)), 2, '0'))
                        from generate_series(0, length(bytes) - 1) i), '%')
                    else c end, '' order by n)
            from regexp_split_to_table(p_value, '') with ordinality as characters (c, n),
                convert_to(c, 'UTF8') bytes)
    end
$$;
