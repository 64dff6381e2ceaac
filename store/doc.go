// Package store is the domain of fencegate, in PostgreSQL: leases, fences, writes, records, and one method of [Store]
// for each SQL call.
//
// The packages below it are machines that call these methods and decide nothing by themselves:
//
//   - store/groupcommit commits the writes of many clients together.
//   - store/waitqueue makes acquires wait for their turn.
//   - store/watch delivers events.
//   - store/readiness finds out whether the database takes commits.
//   - store/engine puts them together for a gateway.
//
// P1 to P15 are the promises of fencegate; docs/concepts.md states them.
//
// # What is authoritative
//
// The fence: one row for each resource. It holds the newest token granted, whether that grant may still write, and the
// token and sequence of the last accepted write. The SQL functions of package migrations make every decision with that
// row locked, by the database's clock. Nothing in this package admits a write, remembers who holds a lock, or decides
// by another clock. Any number of Stores, in any number of processes, may work on one database, be frozen, be killed,
// and come back.
//
//	            acquire                     release, break
//	free ────────────────────▶ held ─────────────────────────▶ free
//	 ▲                        │    ▲                             (the fence is closed)
//	 │                 expiry │    │ acquire by another: the fence is raised,
//	 │                        ▼    │ writes of the late holder are rejected
//	 └──────────────────── expired ┘
//	    release, break     (the fence is open: a late holder that no other has replaced may finish)
//
// # Many at a time
//
// Acquires, renewals and releases of many callers are decided in one statement and one commit where nothing about the
// lock concerns others (see leaseBatches), and one by one where something does.
//
// # The trust window
//
// A lease is live from its grant to its expiry, by the database's clock. What a client knows of it is the past: the
// client may be paused for an hour between reading "held until 12:00:30" and writing. Therefore a write carries its
// token, and the transaction that applies the write judges the token.
//
// # What happens on failures
//
//   - The client dies: its lease expires. The next acquire is granted without waiting for anything.
//   - The gateway dies: a statement whose commit reached the database is in force, any other left no trace. A client
//     without an answer sends the same numbered write again. It gets the first answer, or the write is applied then.
//   - A gateway dies with waiters: other gateways skip its waiters after a few seconds. Waiters that send their acquire
//     again through another gateway keep their tickets.
//   - The connection for notifications breaks: waiters and watches are polled until it is back.
//   - The connection breaks after a commit was sent: [UnavailableError] with OutcomeUnknown. Never a guess.
//   - Another transaction got in the way (40001, 40P01): the statement is sent again, here and nowhere else, at most
//     six times (see Store.send).
//   - The database crashes: it recovers to exactly the acknowledged commits, and possibly unacknowledged ones. The last
//     tenths of a second of renewals and tickets may be lost: they do not wait for the disk.
//   - A standby that lacks the last commits is promoted: the next grant notices, and tokens jump past all that the lost
//     primary can have granted.
//   - Rejections are recorded after the verdict, in the background: the death of a gateway may lose the last tenth of a
//     second of the record, never a verdict.
package store
