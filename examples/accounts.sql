-- The table of the examples, each of which uses an account of its own. Run it in the database that has fencegate's
-- schema: psql -f examples/accounts.sql
\set ON_ERROR_STOP on
begin;
create table accounts (id bigint primary key, balance integer not null);
insert into accounts select n, 100 from generate_series(1, 15) n;
select fence.protect('accounts', 'accounts/{id}');
commit;
