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
