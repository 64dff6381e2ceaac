-- The search for deadlocks works on sets, and reports to the gateway; a long queue of readers is not read to find a writer in it.

-- A step of a search in the graph of waits: an owner, and the wait (its lock and ticket) by which the search came to it. parent is the step
-- before, 0 the start.
create type fence.wait_step as (owner_id text, lock text, ticket bigint, parent integer);

-- A lease (ticket 0) or a wait, from which a search goes on; step is that of its owner.
create type fence.wait_place as (lock text, mode text, scope text, ticket bigint, step integer);

create index waiters_writers on fence.waiters (lock, ticket) where mode = 'exclusive';

drop function if exists fence.wait_cycle(text, text, text, text);
drop function if exists fence.waiting_against(text, text, text);
drop function if exists fence.is_waited_for(text);
drop function if exists fence.heartbeat(uuid, integer);
drop function if exists fence.enqueue(fence.leases, integer, uuid);
