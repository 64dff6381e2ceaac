-- A query for the request of a lock names this collation, so that it can use no other index: in a small table every
-- index on locks seems to lead to one row, and the plan stays while a lock gets thousands of ended leases or of waiters.
-- "POSIX" has the order of "C".
drop index fence.leases_request;
create unique index leases_request on fence.leases (lock collate "POSIX", request_id) where request_id is not null;
drop index fence.waiters_request;
create unique index waiters_request on fence.waiters (lock collate "POSIX", request_id) where request_id is not null;
