-- fence.publish_lease_event(lease, kind, reason) publishes an event of a lease if the lock is watched
-- (fence.publish_event); otherwise it costs one look-up.
create or replace function fence.publish_lease_event(
    p_lease fence.leases, p_kind text, p_reason text default null)
returns void
language plpgsql
as $$
begin
    if exists (select from fence.watched w where w.lock = p_lease.lock and w.until > clock_timestamp()) then
        perform fence.publish_event(row(
            null, p_lease.lock, p_kind, null, p_lease.owner_id, p_lease.fencing_token, p_lease.mode, p_lease.scope,
            case when p_kind in ('granted', 'renewed') and p_lease.session_id is null then p_lease.expires_at end,
            p_reason, null, null, null)::fence.events);
    end if;
end
$$;
