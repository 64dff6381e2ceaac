-- fencegate.placements() → which names, by the hashes of their first segments, are at which node of Citus, and its address.
create or replace function fencegate.placements()
returns table (first bigint, last bigint, node text, address text)
language sql stable set search_path = pg_catalog
as $$
    select s.shardminvalue::bigint, s.shardmaxvalue::bigint, n.groupid::text, format('%s:%s', n.nodename, n.nodeport)
    from pg_dist_shard s
    join pg_dist_placement p using (shardid)
    join pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary'
    where s.logicalrelid = 'fencegate.places'::regclass
$$;

-- fencegate.template_problem(table, template) → why the names of the template are not where the rows of the table are; null if
-- they are.
create or replace function fencegate.template_problem(p_table regclass, p_template text) returns text
language sql stable set search_path = pg_catalog
as $$
    select case
        when d.colocationid is null
            then format('the table %s is not distributed with fencegate.places: its rows are not where their names are', p_table)
        when split_part(p_template, '/', 1) <> format('{%s}', d.name)
            then format('the table %s is distributed by %2$s: its template must begin with {%2$s}', p_table, d.name)
    end
    from (values (1)) one
    left join (
        select d.colocationid, column_to_column_name(d.logicalrelid, d.partkey) as name
        from pg_dist_partition d
        where d.logicalrelid = p_table and d.partmethod = 'h' and d.colocationid = (
            select p.colocationid from pg_dist_partition p where p.logicalrelid = 'fencegate.places'::regclass)
    ) d on true
$$;
