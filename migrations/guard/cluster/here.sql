-- fence.check_here(name) raises LF008 if this database is a node of a cluster, and the name is at another node or moves to
-- one. Called where the name has no fence here: before one is made, and before its absence decides something. The caller
-- then looks for the fence again, because the name may just have arrived.
--
-- Invariant: at most one node has a fence of the name. A fence decides, whatever fence.ranges says, and leaves only while
-- it is locked (fence.export_trees). If this does not raise, the name stays until the end of the transaction.
create or replace function fence.check_here(p_name text) returns void
language plpgsql
as $$
begin
    if not exists (select from fence.cluster) then
        return;
    end if;
    perform from fence.ranges r
    where fence.place_hash(p_name, (select c.place_type from fence.cluster c)) between r.first and r.last
        and r.moves_to is null
    for share;
    if not found then
        raise exception 'the name % is at another node of the cluster', fence.quote_begin(p_name)
            using errcode = 'LF008', hint = 'Call fencegate.guard, fencegate.acquire and their like: they find the node.';
    end if;
end
$$;

-- fence.check_all_here(names) raises as fence.check_here does, if one of the names has no fence here and is elsewhere.
create or replace function fence.check_all_here(p_names text[]) returns void
language plpgsql
as $$
begin
    if exists (select from fence.cluster) then
        perform fence.check_here(n) from unnest(p_names) n
        where (select true from fence.fences f where f.resource = n limit 1) is null;
    end if;
end
$$;

-- fence.is_elsewhere(name) → whether the name has no fence here, and fence.check_here would raise. It locks nothing, and sees
-- what the statement that calls it sees.
create or replace function fence.is_elsewhere(p_name text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from fence.cluster) then
        return false;
    end if;
    return not exists (select from fence.fences f where f.resource = p_name)
        and not exists (
            select from fence.ranges r
            where fence.place_hash(p_name, (select c.place_type from fence.cluster c)) between r.first and r.last
                and r.moves_to is null);
end
$$;

-- fence.place_hash(name, type) → the hash of the first segment of a name, by which a cluster places it. So all names of a
-- tree are at one node, and with them the rows of a table that is distributed by a column of this type, where that has the
-- segment as its value. type is text, bigint or uuid; a segment that is no such value is hashed as a text. The planner
-- inlines it.
create or replace function fence.place_hash(p_name text, p_type text) returns integer
language sql immutable parallel safe
return case
    when p_type = 'bigint' and split_part(p_name, '/', 1) ~ '^(0|-?[1-9][0-9]{0,17})$'
        then hashint8(split_part(p_name, '/', 1)::bigint)
    when p_type = 'uuid' and split_part(p_name, '/', 1) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
        then uuid_hash(split_part(p_name, '/', 1)::uuid)
    else hashtext(split_part(p_name, '/', 1))
end;
