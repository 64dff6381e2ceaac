-- fence.publish_event(event) keeps an event of a watched lock, with the time, and notifies the gateways, which publish
-- it after the commit (fence.publish_events). The payload names the lock to those that watch it: every role can listen
-- (P15). It waits for nothing.
create or replace function fence.publish_event(p_event fence.events) returns void
language plpgsql
as $$
begin
    p_event.at := clock_timestamp();
    insert into fence.unpublished (lock, event) values (p_event.lock, p_event);
    perform pg_notify('fence_events', w.key::text) from fence.watched w where w.lock = p_event.lock;
end
$$;
