-- fence.with_partitions(table) → the table and its partitions, at all levels. Unlike pg_partition_tree, it takes no
-- lock on them, so it never waits for an ALTER TABLE.
create or replace function fence.with_partitions(p_table regclass) returns setof regclass
language sql stable
as $$
    with recursive tree (relid) as (
        select p_table::oid
        union all
        select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.relid)
    select t.relid::regclass from tree t
$$;
