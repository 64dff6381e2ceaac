-- fence.sequences_behind() → the sequences of this schema that have not given the newest number of the columns that they
-- number, and that number. Logical replication copies rows, and no sequences.
create or replace function fence.sequences_behind() returns table (sequence regclass, newest bigint)
language plpgsql
as $$
declare
    v_columns text;
begin
    for sequence, v_columns in
        select s.oid, string_agg(format('(select max(%I) from %s)', a.attname, a.attrelid::regclass), ', ')
        from pg_class s
        join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.oid and d.deptype = 'i' -- an identity
            or d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = s.oid
        left join pg_attrdef e on d.classid = 'pg_attrdef'::regclass and e.oid = d.objid
        join pg_attribute a
            on a.attrelid = coalesce(e.adrelid, d.refobjid) and a.attnum = coalesce(e.adnum, d.refobjsubid)
        where s.relnamespace = 'fence'::regnamespace and s.relkind = 'S'
        group by s.oid
    loop
        execute format('select greatest(%s)', v_columns) into newest;
        if newest > coalesce(pg_sequence_last_value(sequence), 0) then
            return next;
        end if;
    end loop;
end
$$;
