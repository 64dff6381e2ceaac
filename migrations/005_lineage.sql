-- Which database it is: what tells it from an older state of itself, and which one a gateway has seen in its place.

-- The start of the postmaster that issued the last token. null: none since this migration, so the next grant jumps.
alter table fence.database_identity add column started_at timestamptz;

-- When an operator last accepted this database in the state in which it was (fence.accept_database). null: never.
alter table fence.database_identity add column accepted_at timestamptz;

-- Which database is superseded, and by which (fence.supersede). The row is copied by backups and standbys: it is only
-- about the database that it names.
alter table fence.database_identity
    add column superseded_system      bigint,
    add column superseded_timeline    integer,
    add column superseded_by_system   bigint,
    add column superseded_by_timeline integer,
    add column superseded_at          timestamptz;
