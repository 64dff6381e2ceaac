-- Two workers claim jobs, and one is frozen: psql -X -q -f examples/psql/claim.sql
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on

create temp table a as select * from fence.claim('jobs', 2, 'worker-a', 1000, 'not done and due <= now()');
select 'worker-a claims ' || string_agg(resource, ', ') from a;

-- A completion: one transaction, as short as this.
select resource, lease_id, fencing_token, job ->> 'id' as id from a limit 1 \gset
begin;
select fence.guard(:'resource', :fencing_token, 1) \g /dev/null
update jobs set done = true where id = :id;
select 'worker-a completes ' || :'resource' || ', and its lease is ' || status
from fence.release(:'resource', 'worker-a', :'lease_id', :fencing_token);
commit;

-- A claim steps over a name that somebody has locked just then: so this waits, too, until the sweep has ended the leases.
\echo worker-a is frozen, and its leases expire
select pg_sleep(2.5) \g /dev/null
create temp table b as select * from fence.claim('jobs', 2, 'worker-b', 30000, 'not done and due <= now()');
select 'worker-b claims ' || string_agg(resource, ', ') from b;

\echo worker-a wakes up
select 'worker-a renews, and has ' || count(*) || ' leases' from fence.renew_claim('worker-a', :'lease_id');
select resource, fencing_token from a offset 1 \gset
\set ON_ERROR_STOP off
begin;
select fence.guard(:'resource', :fencing_token, 1);
\echo rejected: :LAST_ERROR_SQLSTATE: :LAST_ERROR_MESSAGE
rollback;
\set ON_ERROR_STOP on

-- A worker that ends gives back what it has: to renew the claim lists it.
select lease_id from b limit 1 \gset
select 'worker-b gives ' || resource || ' back: '
    || (fence.release(resource, 'worker-b', :'lease_id', fencing_token)).status
from fence.renew_claim('worker-b', :'lease_id') order by resource;
