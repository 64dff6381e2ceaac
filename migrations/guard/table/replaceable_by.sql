-- fence.replaceable_by(table) → which role may replace the triggers of a table or of one of its partitions, and what to
-- revoke; null if none may. A role with the right TRIGGER, which GRANT ALL includes, may, and so may its members. The
-- owner of the table and that of the schema fence, which makes the triggers, do not count.
create or replace function fence.replaceable_by(p_table regclass) returns text
language sql stable
as $$
    select format('%1$s may replace the triggers: revoke trigger on %2$s from %1$s',
        coalesce(r.rolname, 'public'), t.oid::regclass)
    from pg_class t
    cross join aclexplode(t.relacl) a
    left join pg_roles r on r.oid = a.grantee
    where t.oid in (select p.relid from fence.with_partitions(p_table) as p (relid))
        and a.privilege_type = 'TRIGGER'
        and a.grantee not in (t.relowner, (select n.nspowner from pg_namespace n where n.nspname = 'fence'))
    order by 1
    limit 1
$$;
