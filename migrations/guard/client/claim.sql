-- fence.claim(jobs, jobs_max, owner_id, ttl_ms, condition, order_by) takes leases on rows of a protected table that nobody
-- holds: jobs of a queue, or messages of an outbox. It is part of the public interface: docs/sql/leases.md describes it,
-- and its arguments and columns stay. → a row for each: its resource, the lease, and the row itself. It may return fewer
-- than there are. It leaves out rows of names that the role may not use. Rows of one resource share its lease.
--
-- condition  an SQL condition on the row: what is a job that is not done; null: every row
-- order_by   as in SQL; null: the columns of the template
-- lease_id   is one for all rows of the call, and a secret: fence.renew_claim renews them together
--
-- It reads and locks the rows with the rights and the search_path of its caller, who needs the rights to select and to
-- update. Both texts become part of a statement: they must not come from a user. Names are qualified, as in fence.guard.
--
-- It waits for no other transaction. A row is locked first, so that of two claims one skips it, and a row that another
-- transaction has just changed is judged anew. Then fence.claim_leases decides whether it is held, and leaves out what
-- another transaction has locked. The claim replaces those by the next rows. It does so for a second at most while it has
-- nothing, and ends at the first rows that bring nothing more.
--
-- Raises what fence.claim_query and fence.claim_leases raise.
create or replace function fence.claim(
    jobs regclass, jobs_max integer, owner_id text, ttl_ms integer default 30000, condition text default null,
    order_by text default null)
returns table (resource text, lease_id uuid, fencing_token bigint, expires_at timestamptz, job jsonb)
language plpgsql
as $$
#variable_conflict use_column
declare
    c_search  constant pg_catalog.interval := '1 s';
    v_until   pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) c_search;
    v_claim   pg_catalog.uuid := pg_catalog.overlay(pg_catalog.gen_random_uuid()::pg_catalog.text, '83', 15);
    v_tried   pg_catalog.text[] := '{}';
    v_names   pg_catalog.text[];
    v_jobs    pg_catalog.jsonb[];
    v_left    pg_catalog.int4 := jobs_max;
    v_claimed pg_catalog.int4;
begin
    loop
        execute fence.claim_query(jobs, v_left, claim.owner_id, claim.ttl_ms, condition, order_by, v_tried)
            into v_names, v_jobs;
        exit when v_names is null;
        return query
        select l.resource, v_claim, l.fencing_token, l.expires_at, j.job
        from fence.claim_leases(jobs, v_names, claim.owner_id, claim.ttl_ms, v_claim) l
        join rows from (pg_catalog.unnest(v_names), pg_catalog.unnest(v_jobs)) with ordinality as j (resource, job, n)
            on j.resource operator(pg_catalog.=) l.resource
        order by j.n;
        get diagnostics v_claimed = row_count;
        exit when pg_catalog.cardinality(v_names) operator(pg_catalog.<) v_left
            or v_claimed operator(pg_catalog.=) 0 and (v_left operator(pg_catalog.<) jobs_max
                or pg_catalog.clock_timestamp() operator(pg_catalog.>) v_until);
        v_left := v_left operator(pg_catalog.-) v_claimed;
        exit when v_left operator(pg_catalog.=) 0;
        v_tried := v_tried operator(pg_catalog.||) v_names;
    end loop;
end
$$;
