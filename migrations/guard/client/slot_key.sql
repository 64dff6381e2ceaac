-- fence.slot_key(name, cause, table, role) → the hash of a group of rejections by SQL, in the highest 43 bits of a
-- positive bigint; the lowest 20 are 0 (fence.rejected_slots). cause has the token, and table is the id of a protected table.
create or replace function fence.slot_key(p_name text, p_cause bigint, p_table integer, p_role oid) returns bigint
language sql stable
return (hashtextextended(format('%s %s %s %s', p_cause, p_table, p_role, p_name), 0) & 8796093022207) << 20;
