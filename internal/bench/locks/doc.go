// Package locks measures fencegate as a lock service beside others: in one run, on one machine, in turn.
//
//	wake-up   from just before a release is sent until the waiter's acquire has returned
//	cycles    acquire and release, as fast as clients can: each on a lock of its own, and all on one lock
//	leases    cycles and heartbeats of leases in PostgreSQL, in Redis and in Redlock, beside libraries that lock in Redis
//	crowd     thousands of waiters for one lock: their cost while nothing happens, and how fast the queue moves
//
// # What is measured beside what
//
//	fencegate       one gateway process, over HTTP
//	fencegate x2    two gateway processes before one database; clients take turns between them
//	etcd            concurrency.Mutex, a session a client; one node
//	redis           SET NX PX, released by a script that compares and deletes; one server, no queue: a waiter tries again
//	redis fsync     the same, with appendonly yes and appendfsync always
//
// Among leases, "redis" is fencegate's provider of that name; lease_services.go has all of them.
//
// Every client has a connection of its own. fencegate, etcd and "redis fsync" answer once the change is on disk;
// "redis", as it comes, does not. Peers that are not on the machine are skipped, and named in the report.
package locks
