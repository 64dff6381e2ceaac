-- fence.read_slots(ahead) moves what is new in fence.rejected_slots to fence.reported. It finds the name of a fence in its
-- block, where it still is unless an update had no place there. A slot whose hash fits no name and role was being written,
-- or is spoiled: it is read once more, at the next call.
--
-- The numbers of the fence are those of now. ahead is how many that nextval has counted may never have come
-- (fence.sweep_reported); the first of a group was set by setval, which is exact.
create or replace function fence.read_slots(p_ahead integer) returns void
language plpgsql
as $$
declare
    v_slot  record;
    v_block bigint;
    v_count bigint;
begin
    for v_slot in
        select s.slot, s.missed, now.key, now.cause, now.place, case
            when now.key between s.read and (s.read | 1048575) then s.read
            else now.key >> 20 << 20 end as read -- another group, or one that came back
        from fence.rejected_slots s
        cross join lateral (
            select pg_sequence_last_value(s.key) as key, pg_sequence_last_value(s.cause) as cause,
                pg_sequence_last_value(s.place) as place
            offset 0
        ) now
        where now.key <> s.read
    loop
        v_block := v_slot.place >> 31;
        v_count := v_slot.key - v_slot.read;
        v_count := v_count - least(p_ahead, v_count - (v_slot.read & 1048575 = 0)::integer);
        insert into fence.reported (
            resource, table_name, code, reason, address, principal, fencing_token, granted_token, last_token,
            last_sequence, count)
        select named.name, coalesce(p.table_name, ''), split_part(cause.said, '/', 1), split_part(cause.said, '/', 2), '',
            'sql:' || r.rolname, v_slot.cause >> 10, named.granted_token, named.last_token, named.last_sequence,
            v_count
        from (
            select p.id, p.template, fence.name_of_table(p.table_id) as table_name
            from fence.protected_tables p where p.id = v_slot.place & 2147483647
            union all
            select 0, null, '' where v_slot.place & 2147483647 = 0
        ) p
        cross join lateral (
            select f.resource::text as name, f.granted_token, f.last_token, f.last_sequence
            from fence.fences f
            where v_block < 4294967295 and f.ctid >= format('(%s,0)', v_block)::tid
                and f.ctid < format('(%s,0)', v_block + 1)::tid
            union all
            select p.template, 0, 0, 0 where v_block = 4294967295 and p.template is not null
        ) named
        join pg_roles r on r.oid::bigint & 63 = v_slot.cause & 63
        cross join lateral (select (fence.causes())[v_slot.cause >> 6 & 15] as said) cause
        where v_count > 0 and fence.slot_key(named.name, v_slot.cause, p.id, r.oid) = v_slot.key >> 20 << 20
        limit 1;
        if found or v_count = 0 or v_slot.missed = v_slot.key then
            update fence.rejected_slots s set read = v_slot.key where s.slot = v_slot.slot;
        else
            update fence.rejected_slots s set missed = v_slot.key where s.slot = v_slot.slot;
        end if;
    end loop;
end
$$;
