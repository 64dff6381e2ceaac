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
