// Package postgres keeps leases, fences and records in one PostgreSQL database: one method of [Store] for each SQL call.
// The SQL functions of package migrations decide; this package carries their arguments and answers. Any number of
// Stores, in any number of processes, may work on one database, be frozen, be killed, and come back.
//
// # Many at a time
//
// Acquires, renewals and releases of many callers are decided in one statement and one commit where nothing about the
// lock concerns others (see leaseBatches), and one by one where something does.
//
// # What happens on failures
//
//   - The client dies: its lease expires. The next acquire is granted without waiting for anything.
//   - The gateway dies: a statement whose commit reached the database is in force, any other left no trace. A client
//     without an answer sends the same numbered write again. It gets the first answer, or the write is applied then.
//   - A gateway dies with waiters: other gateways skip its waiters after a few seconds. Waiters that send their acquire
//     again through another gateway keep their tickets.
//   - The connection for notifications breaks: waiters and watches are polled until it is back.
//   - The connection breaks after a commit was sent: [store.UnavailableError] with OutcomeUnknown. Never a guess.
//   - Another transaction got in the way (40001, 40P01): the statement is sent again, here and nowhere else, at most
//     six times (see Store.send).
//   - The database crashes: it recovers to exactly the acknowledged commits, and possibly unacknowledged ones. The last
//     tenths of a second of renewals and tickets may be lost: they do not wait for the disk.
//   - A standby that lacks the last commits is promoted: the next grant notices, and tokens jump past all that the lost
//     primary can have granted.
//   - Rejections are recorded after the verdict, in the background: the death of a gateway may lose the last tenth of a
//     second of the record, never a verdict.
package postgres
