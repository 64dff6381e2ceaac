-- fence.note_rejection(resource, token, ruling, table) counts a rejection by SQL that is about to be raised, and leaves
-- behind its time and what else the sweep needs to list it (fence.read_slots), although the transaction will be rolled
-- back: sequences keep what setval and nextval have set. table is the protected table, null for none.
--
-- A group that has a slot already is only counted in it, after its time is set: so who sees the count sees the time.
-- Any other takes the oldest slot: if the sweep has not read that yet, the rejections in it stay counted, and are not
-- listed. Two that take one slot at the same time may spoil it: the sweep finds out by the hash. It waits for nothing
-- (P13).
--
-- The name itself would need a dozen sequences a slot. So it leaves the block of the fence, in which the sweep finds the
-- name by the hash. A resource without a fence is listed by the template of its table; without one, it is not listed.
create or replace function fence.note_rejection(
    p_resource text, p_token bigint, p_ruling fence.ruling, p_table oid) returns void
language plpgsql
as $$
declare
    v_block bigint := (select (f.ctid::text::point)[0] from fence.fences f where f.resource = p_resource);
    v_role  oid := (select r.oid from pg_roles r where r.rolname = session_user);
    v_table record;
    v_at    bigint := extract(epoch from clock_timestamp()) * 1000000;
    v_cause bigint;
    v_key   bigint;
    v_slot  fence.rejected_slots;
    v_next  bigint;
begin
    perform nextval(concat_ws('_', 'fence.rejected_by_sql', p_ruling.verdict, nullif(p_ruling.reason, ''))::regclass);
    select coalesce(max(p.id), 0) as id, max(p.template) as template into v_table
    from fence.protected_tables p where p.table_id = p_table;
    if v_block is null and v_table.template is null then
        return;
    end if;
    v_cause := (least(greatest(coalesce(p_token, 0), 0), 9007199254740991) << 10)
        | (array_position(fence.causes(), p_ruling.verdict || '/' || p_ruling.reason) << 6) | (v_role::bigint & 63);
    v_key := fence.slot_key(
        case when v_block is null then v_table.template else p_resource end, v_cause, v_table.id, v_role);

    select s.* into v_slot from fence.rejected_slots s
    where pg_sequence_last_value(s.key) between v_key + 1 and v_key + (1 << 20) - 2;
    if found then
        perform setval(v_slot.last, v_at);
        v_next := nextval(v_slot.key);
        if v_next >> 20 = v_key >> 20 then
            return;
        end if;
    end if;
    v_next := nextval('fence.rejected_slot');
    select s.* into v_slot from fence.rejected_slots s where s.slot = v_next;
    perform setval(v_slot.first, v_at), setval(v_slot.last, v_at), setval(v_slot.cause, v_cause),
        setval(v_slot.place, (coalesce(v_block, 4294967295) << 31) | v_table.id), setval(v_slot.key, v_key + 1);
end
$$;

-- fence.report_rejection(resource, token, sequence, ruling, table) → whether it has recorded a rejection by SQL, which
-- lasts if the transaction is committed. It counts each, and records 100 at most in a transaction. table is the
-- protected table in the mode "observe"; null for fence.try_guard. Only the begin of a resource that is too long for a
-- name is recorded: an index could not hold it all.
create or replace function fence.report_rejection(
    p_resource text, p_token bigint, p_sequence bigint, p_ruling fence.ruling, p_table oid) returns boolean
language plpgsql
as $$
begin
    perform nextval(concat_ws('_', case when p_table is null then 'fence.rejected_by_sql' else 'fence.observed_by_sql' end,
        p_ruling.verdict, nullif(p_ruling.reason, ''))::regclass);
    perform fence.move_sequences();
    insert into fence.reported (resource, table_name, code, reason, address, fencing_token, sequence, granted_token,
        last_token, last_sequence, principal)
    select left(p_resource, 512), coalesce(fence.name_of_table(p_table), ''), p_ruling.verdict, p_ruling.reason,
        coalesce(host(inet_client_addr()), 'local'), coalesce(p_token, 0), p_sequence, p_ruling.granted_token,
        p_ruling.last_token, p_ruling.last_sequence, 'sql:' || session_user
    where not exists (select from fence.reported r where r.reported_in = pg_current_xact_id() offset 99);
    return found;
end
$$;

-- fence.causes() → the causes of rejections: code/reason, as of fence.admit and fence.rejection_error. Fewer than 16.
create or replace function fence.causes() returns text[]
language sql immutable
return array['token_required/', 'token_unknown/', 'token_stale/superseded', 'token_stale/released',
    'token_stale/reused', 'token_stale/shared', 'token_reused/', 'lease_mismatch/',
    'lease_expired/', 'truncate/'];

-- fence.slot_key(name, cause, table, role) → the hash of a group of rejections by SQL, in the highest 43 bits of a
-- positive bigint; the lowest 20 are 0 (fence.rejected_slots). cause has the token, and table is the id of a protected table.
create or replace function fence.slot_key(p_name text, p_cause bigint, p_table integer, p_role oid) returns bigint
language sql stable
return (hashtextextended(format('%s %s %s %s', p_cause, p_table, p_role, p_name), 0) & 8796093022207) << 20;
