-- fence.note_key_change(): this transaction changes fence.keys. It comes first in each function that does.
--
-- Invariant: the changes of keys are made one after the other, so a gateway that has read the keys at some count of
-- changes has seen all of them up to it. Gateways are notified at the commit (the channel fence_keys).
create or replace function fence.note_key_change() returns void
language plpgsql
as $$
begin
    perform fence.commit_durably();
    update fence.key_changes c set changes = c.changes + 1;
    perform pg_notify('fence_keys', '');
end
$$;
