-- fence.segment_value(segment) → the text whose fence.segment it is; null: it is that of null, or of none. Raises 22021
-- if it encodes bytes that are not UTF-8.
create or replace function fence.segment_value(p_segment text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select v.value
    from (
        select case when p_segment = '%empty' then '' else convert_from(string_agg(
            case when left(m.part[1], 1) = '%' then decode(substr(m.part[1], 2), 'hex') else convert_to(m.part[1], 'UTF8') end,
            '' order by m.n), 'UTF8') end
        from regexp_matches(p_segment, '%[0-9A-F]{2}|[^%]+', 'g') with ordinality as m (part, n)) as v (value)
    where fence.segment(v.value) = p_segment
$$;
