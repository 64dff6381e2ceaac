-- The functions of applications for all nodes of a cluster: fencegate.guard does what fence.guard does, at the node of the
-- name. Citus keeps these functions on all nodes. {{type}} is the type of the places.
--
-- A call that is to be sent to another node needs constants as arguments, and to stand in FROM; so each is a statement of
-- its own. They run with the rights of their caller, or the other node would see another role.
--
-- fencegate.place(name) → the value by which Citus finds the node of the name.
create or replace function fencegate.place(p_name text) returns {{type}}
language plpgsql immutable parallel safe
as $$
begin
    return split_part(p_name, '/', 1);
end
$$;

create or replace function fencegate.guard_at(
    place {{type}}, resource text, token bigint, sequence bigint, lease_id uuid, digest bytea) returns boolean
language plpgsql
as $$
begin
    return fence.guard(resource, token, sequence, lease_id, digest);
end
$$;

create or replace function fencegate.guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null)
returns boolean
language plpgsql
as $$
declare
    v_admitted boolean;
begin
    execute format('select g from fencegate.guard_at(%L, %L, %L, %L, %L, %L) g',
        fencegate.place(resource), resource, token, sequence, lease_id, digest) into v_admitted;
    return v_admitted;
end
$$;

create or replace function fencegate.acquire_at(
    place {{type}}, lock text, owner_id text, ttl_ms integer, mode text, scope text, request_id text, metadata json,
    out status text, out reason text, out lease_id uuid, out fencing_token bigint, out expires_at timestamptz,
    out hold_until timestamptz, out holder text, out queue_length bigint, out recommended_retry_ms bigint)
language plpgsql
as $$
begin
    select * from fence.acquire(lock, owner_id, ttl_ms, mode, scope, request_id, metadata)
    into status, reason, lease_id, fencing_token, expires_at, hold_until, holder, queue_length, recommended_retry_ms;
end
$$;

create or replace function fencegate.acquire(
    lock text, owner_id text, ttl_ms integer default 30000, mode text default 'exclusive', scope text default 'node',
    request_id text default null, metadata json default null,
    out status text, out reason text, out lease_id uuid, out fencing_token bigint, out expires_at timestamptz,
    out hold_until timestamptz, out holder text, out queue_length bigint, out recommended_retry_ms bigint)
language plpgsql
as $$
begin
    execute format('select * from fencegate.acquire_at(%L, %L, %L, %L, %L, %L, %L, %L)',
        fencegate.place(lock), lock, owner_id, ttl_ms, mode, scope, request_id, metadata)
    into status, reason, lease_id, fencing_token, expires_at, hold_until, holder, queue_length, recommended_retry_ms;
end
$$;

create or replace function fencegate.release_at(
    place {{type}}, lock text, owner_id text, lease_id uuid, fencing_token bigint, out status text, out reason text)
language plpgsql
as $$
begin
    select * from fence.release(lock, owner_id, lease_id, fencing_token) into status, reason;
end
$$;

create or replace function fencegate.release(
    lock text, owner_id text, lease_id uuid, fencing_token bigint, out status text, out reason text)
language plpgsql
as $$
begin
    execute format('select * from fencegate.release_at(%L, %L, %L, %L, %L)',
        fencegate.place(lock), lock, owner_id, lease_id, fencing_token) into status, reason;
end
$$;

create or replace function fencegate.renew_at(
    place {{type}}, lock text, owner_id text, lease_id uuid, fencing_token bigint, ttl_ms integer,
    out status text, out reason text, out expires_at timestamptz, out hold_until timestamptz)
language plpgsql
as $$
begin
    select * from fence.renew(lock, owner_id, lease_id, fencing_token, ttl_ms) into status, reason, expires_at, hold_until;
end
$$;

create or replace function fencegate.renew(
    lock text, owner_id text, lease_id uuid, fencing_token bigint, ttl_ms integer default null,
    out status text, out reason text, out expires_at timestamptz, out hold_until timestamptz)
language plpgsql
as $$
begin
    execute format('select * from fencegate.renew_at(%L, %L, %L, %L, %L, %L)',
        fencegate.place(lock), lock, owner_id, lease_id, fencing_token, ttl_ms)
    into status, reason, expires_at, hold_until;
end
$$;

create or replace function fencegate.try_guard_at(
    place {{type}}, resource text, token bigint, sequence bigint, lease_id uuid, digest bytea,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql
as $$
begin
    select * from fence.try_guard(resource, token, sequence, lease_id, digest)
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;

create or replace function fencegate.try_guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql
as $$
begin
    execute format('select * from fencegate.try_guard_at(%L, %L, %L, %L, %L, %L)',
        fencegate.place(resource), resource, token, sequence, lease_id, digest)
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;
