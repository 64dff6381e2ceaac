// Package watch delivers the states of locks to the subscribers of one process.
//
// The database notifies of changes of a lock while a process watches it. One goroutine, [Broadcast.Run], then reads the
// lock, and hands its state to the subscriptions, if it has changed. A renewal is no change. Nothing is kept: what
// happened between two readings is one change.
//
// # Invariants
//
//   - A subscription returns the state of its lock as it was after Subscribe, and then each newer one that differs. A
//     slow subscriber gets only the newest, and delays no other.
//   - The versions of the states rise, also for a reader that subscribes again, at any process, after a restart or a
//     failover of the database. A version is the time of the reading in microseconds since 1970, by the database's
//     clock, from before its snapshot: a later subscriber gets a later reading. If the clock was set back, a
//     process goes on above the last version.
//
// # What happens on each failure
//
//   - A notification is lost: the poll finds the change.
//   - The database is unreachable: states are late. After a minute the subscriptions end with ErrUnavailable, so that
//     clients try another process.
//   - This process dies: the database stops notifying of its locks after a minute.
package watch
