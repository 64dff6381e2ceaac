-- The jobs of the workers. Each takes so many seconds; one with less than none fails. Run it in the database that has
-- fencegate's schema: psql -f examples/jobs.sql
\set ON_ERROR_STOP on
create table jobs (
    id bigint generated always as identity primary key, seconds integer not null, done boolean not null default false,
    attempts integer not null default 0, due timestamptz not null default now());
create index jobs_open on jobs (id) where not done; -- the order and the condition of the claims
select fence.protect('jobs', 'jobs/{id}', inserts => 'free');
insert into jobs (seconds) values (0), (3600), (0), (-1), (0);
