-- fence.try_gates(locks) → those of the locks whose gates this transaction has now (fence.try_gate).
create or replace function fence.try_gates(p_locks text[]) returns text[]
language plpgsql
as $$
begin
    return array(select l from unnest(p_locks) l where fence.try_gate(l));
end
$$;
