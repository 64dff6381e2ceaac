-- fence.minted_here() → the row of fence.database_identity if this database is the one that issued the last token, and
-- was not started again since. None: fence.jump is needed before the next token, unless that jump was made and is not
-- recorded yet.
--
-- The system identifier is in a file, which costs more to read than the rest of a grant. It cannot have changed where
-- the postmaster is the same. The planner inlines the function.
create or replace function fence.minted_here() returns setof fence.database_identity
language sql stable
as $$
    select i.* from fence.database_identity i
    where (i.timeline, i.tokens_oid, i.started_at)
            = (fence.running_timeline(), to_regclass('fence.tokens')::oid, pg_postmaster_start_time())
        and (i.superseded_system, i.superseded_timeline) is distinct from (i.system_identifier, i.timeline)
$$;
