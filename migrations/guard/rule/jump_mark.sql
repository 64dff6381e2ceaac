-- fence.jump_mark() → the mark of the jump from the database that issued the last token (fence.database_identity) to the
-- running one; null if they are the same. fence.jumped has the mark of the last jump. Each recorded jump and each
-- fence.accept_database changes the mark, so no jump is taken for an earlier one.
create or replace function fence.jump_mark() returns bigint
language sql stable
as $$
    select hashtextextended(format('%s %s %s %s %s %s %s %s %s %s',
        i.system_identifier, i.timeline, i.tokens_oid, extract(epoch from i.started_at), i.jumps,
        extract(epoch from i.accepted_at),
        r.system_identifier, r.timeline, r.tokens_oid, extract(epoch from r.started_at)), 0)
    from fence.running_database() r left join fence.database_identity i on true
    where (i.system_identifier, i.timeline, i.tokens_oid, i.started_at)
        is distinct from (r.system_identifier, r.timeline, r.tokens_oid, r.started_at)
$$;
