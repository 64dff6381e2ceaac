-- fence.check_lease_call(lock, owner_id) makes the checks that all lease functions of clients have in common, and bounds
-- how long the transaction may stay open (fence.bound_transaction). Raises 22023 for a bad argument, 25006 as
-- fence.check_writable does, and 25000 unless the transaction is READ COMMITTED: the functions lock first, and read in
-- later statements what was committed before the lock. With one snapshot for all statements, an acquire would overlook a
-- lease that was granted meanwhile on a name above or below (P1), and a release would not wake a new waiter.
create or replace function fence.check_lease_call(p_lock text, p_owner_id text) returns void
language plpgsql
as $$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'leases need a transaction with the isolation level read committed, this one is %',
            current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state',
            hint = 'Call it in a transaction of its own, begun with: begin isolation level read committed.';
    end if;
    perform fence.require(fence.is_name(p_lock),
        format('lock is %s, which is not a name: 1 to 512 bytes in segments between slashes, '
            'none of them empty, . or ..', coalesce(fence.quote_begin(p_lock), 'null')));
    perform fence.check_text('owner_id', p_owner_id, 256);
    perform fence.check_writable();
    perform fence.bound_transaction('fencegate.lease_timeout', '5 s');
end
$$;
