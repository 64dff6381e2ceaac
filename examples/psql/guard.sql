-- A fenced update by plain SQL, and a zombie: psql -X -q -f examples/psql/guard.sql
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on

select fencing_token as older from fence.acquire('accounts/1', 'worker-a', ttl_ms => 1000) \gset
begin;
select 'admitted: ' || fence.guard('accounts/1', :older, 1);
update accounts set balance = balance - 10 where id = 1 returning 'worker-a: the balance is ' || balance;
commit;

\echo worker-a is frozen, and its lease expires
select pg_sleep(1.1) \g /dev/null
select fencing_token as newer from fence.acquire('accounts/1', 'worker-b') \gset

\echo worker-a wakes up
\set ON_ERROR_STOP off
begin;
select fence.guard('accounts/1', :older, 2);
\echo rejected: :LAST_ERROR_SQLSTATE: :LAST_ERROR_MESSAGE
rollback;

\echo worker-a writes without a guard
update accounts set balance = 0 where id = 1;
\echo rejected: :LAST_ERROR_SQLSTATE: :LAST_ERROR_MESSAGE

\set ON_ERROR_STOP on
begin;
select fence.set_token(:newer, 1) \g /dev/null -- instead of fence.guard, for software that can't call it
update accounts set balance = balance - 10 where id = 1 returning 'worker-b: the balance is ' || balance;
commit;
