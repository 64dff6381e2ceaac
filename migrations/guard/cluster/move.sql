-- fence.begin_move(first, last, node): the names with these hashes move to that node, so no fence is made for them here any
-- more. It waits for transactions that make one. What moves already is left out, and parts of ranges beyond are kept.
--
-- A range moves by these functions, each in a transaction of its own that can be repeated after a failure:
--
--   the node before  begin_move, export_trees …          finish_export               end_move
--   the node after                       finish_import …               take_range
--
-- Between export and import, no node decides about a name: callers try again (LF008).
create or replace function fence.begin_move(p_first bigint, p_last bigint, p_node text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_range fence.ranges;
begin
    for v_range in
        select * from fence.ranges r where r.first <= p_last and r.last >= p_first and r.moves_to is null
        order by r.first for update
    loop
        delete from fence.ranges r where r.range_id = v_range.range_id;
        insert into fence.ranges (first, last, moves_to)
        select r.first, r.last, r.moves_to
        from (values
            (v_range.first, p_first - 1, null),
            (greatest(v_range.first, p_first), least(v_range.last, p_last), p_node),
            (p_last + 1, v_range.last, null)) as r (first, last, moves_to)
        where r.first <= r.last;
    end loop;
end
$$;

-- fence.export_trees(range_id, after, names_max) moves all rows of the next trees of a range to fence.transfers. → the id of
-- the transfer, null if there was nothing to move; after, to go on from, null at the end; skipped: another transaction has
-- had a name of a tree locked for a second, so the tree stays for now.
--
-- It takes trees until they have names_max names. A tree is never divided, because a decision about a name reads rows of
-- its tree. The watches of the names are deleted: their gateways notice (store/cluster).
create or replace function fence.export_trees(
    p_range_id uuid, p_after text, p_names_max integer, out id uuid, out after text, out skipped boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set lock_timeout = '1s'
as $$
declare
    v_type  text := (select c.place_type from fence.cluster c);
    v_range fence.ranges;
    v_tree  text;
    v_names text[];
    v_count integer := 0;
    v_table record;
begin
    perform fence.commit_durably();
    -- The lock keeps the move from ending meanwhile: names could come back by another one, and would be taken for these.
    select * into v_range from fence.ranges r
    where r.range_id = p_range_id and r.moves_to is not null and not r.sent for share;
    after := p_after;
    skipped := false;
    while v_count < p_names_max loop
        after := (
            select f.resource from fence.fences f
            where f.resource > export_trees.after
                and fence.place_hash(f.resource, v_type) between v_range.first and v_range.last
            order by f.resource limit 1);
        exit when after is null;
        v_tree := split_part(after, '/', 1);
        begin
            perform fence.take_tree_lock_alone(fence.tree_of(v_tree));
            perform from fence.fences f
            where f.resource = v_tree or fence.is_below(f.resource, v_tree) order by f.resource for update;
        exception
            when lock_not_available then
                skipped := true;
                exit;
        end;
        v_names := array(
            select f.resource from fence.fences f where f.resource = v_tree or fence.is_below(f.resource, v_tree));
        v_count := v_count + cardinality(v_names);
        id := coalesce(id, gen_random_uuid());
        for v_table in select * from fence.tables_of_names() loop
            execute format(
                'with moved as (delete from fence.%1$I t where t.%2$I = any ($1) returning t.*)
                insert into fence.transfers (transfer_id, moves_to, kind, item)
                select $2, $3, %1$L, m::text from moved m order by m.%3$I', v_table.name, v_table.key, v_table.sort)
            using v_names, id, v_range.moves_to;
        end loop;
        delete from fence.watched w where w.lock = any (v_names);
    end loop;
end
$$;

-- fence.tables_of_names() → the tables that move with a name; key: the column that has the name, sort: the column by whose
-- order the rows arrive. Waiters get new tickets, in the order of the old ones.
create or replace function fence.tables_of_names() returns table (name text, key text, sort text)
language sql immutable
as $$
    values ('fences', 'resource', 'resource'), ('leases', 'lock', 'fencing_token'), ('waiters', 'lock', 'ticket'),
        ('records', 'resource', 'key'), ('unused', 'name', 'name'), ('claimed', 'lock', 'lock')
$$;

-- fence.import_rows(transfer_id, first, kinds, items) keeps rows of a transfer until all have come. first: they are the first
-- ones, and those of an attempt before are deleted.
create or replace function fence.import_rows(
    p_transfer_id uuid, p_first boolean, p_kinds text[], p_items text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(1718511208, hashtext(p_transfer_id::text)); -- another gateway may send the same
    if p_first then
        delete from fence.transfers t where t.transfer_id = p_transfer_id;
    end if;
    insert into fence.transfers (transfer_id, kind, item)
    select p_transfer_id, u.kind, u.item from unnest(p_kinds, p_items) with ordinality as u (kind, item, n) order by u.n;
end
$$;

-- fence.finish_import(transfer_id, items) puts the rows of a transfer into their tables: from then on this node decides about
-- the names. → true if that is done, also if it was done before. false if not so many rows have come, because another gateway
-- sends the same: then nothing was changed.
--
-- fence.admitted takes a number of a transaction of the other node for one of this node, so it is deleted. Tokens of this
-- node rise above those of the names; the margin is for those that are minted meanwhile.
create or replace function fence.finish_import(p_transfer_id uuid, p_items integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_newest bigint;
    v_table  record;
begin
    perform fence.commit_durably();
    perform pg_advisory_xact_lock(1718511208, hashtext(p_transfer_id::text));
    if not exists (select from fence.imported i where i.id = p_transfer_id) then
        if p_items <> (select count(*) from fence.transfers t where t.transfer_id = p_transfer_id) then
            return false;
        end if;
        insert into fence.imported (id) values (p_transfer_id);
        for v_table in select * from fence.tables_of_names() loop
            execute format(
                'insert into fence.%1$I overriding user value
                select (m.item).* from (
                    select t.item::fence.%1$I as item from fence.transfers t
                    where t.transfer_id = $1 and t.kind = %1$L order by t.n offset 0) m', v_table.name)
            using p_transfer_id;
        end loop;
        v_newest := (
            select max(greatest((t.item::fence.fences).granted_token, (t.item::fence.fences).last_token))
            from fence.transfers t where t.transfer_id = p_transfer_id and t.kind = 'fences');
        update fence.fences f set admitted_in = null
        from fence.transfers t
        where t.transfer_id = p_transfer_id and t.kind = 'fences' and f.resource = (t.item::fence.fences).resource
            and f.admitted_in is not null;
        if v_newest >= (select t.last_value from fence.tokens t) then
            perform setval('fence.tokens', v_newest + 10000);
        end if;
    end if;
    delete from fence.transfers t where t.transfer_id = p_transfer_id;
    return true;
end
$$;

-- fence.end_transfer(transfer_id): the node after has the names of the transfer.
create or replace function fence.end_transfer(p_transfer_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from fence.transfers t where t.transfer_id = p_transfer_id;
end
$$;

-- fence.finish_export(range_id): all names of the range have arrived. Those that come back from now on, by another move, are
-- not exported with this one.
create or replace function fence.finish_export(p_range_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.commit_durably();
    update fence.ranges r set sent = true where r.range_id = p_range_id and r.moves_to is not null;
end
$$;

-- fence.take_range(range_id, first, last): fences are made here from now on for names with these hashes. range_id is that of
-- the range at the node before, which has exported all (fence.finish_export). A range that was taken before is ignored.
create or replace function fence.take_range(p_range_id uuid, p_first bigint, p_last bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.commit_durably();
    insert into fence.imported (id) values (p_range_id) on conflict do nothing;
    if found then
        insert into fence.ranges (first, last) values (p_first, p_last);
    end if;
end
$$;

-- fence.end_move(range_id): the node after has taken the range.
create or replace function fence.end_move(p_range_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from fence.ranges r where r.range_id = p_range_id and r.sent;
end
$$;
