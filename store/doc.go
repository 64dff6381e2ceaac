// Package store is the domain of fencegate and its one home in PostgreSQL.
//
// # What is authoritative
//
// The fence: one row per resource that holds the newest token granted on it, whether that grant may still write,
// and the token and sequence of the last accepted write. Every decision is made by the SQL functions of package
// migrations with that row locked, by the database's clock. Nothing in this package compares tokens, remembers
// who holds what, or decides by a clock of its own: any number of Stores, in any number of processes, may work on one
// database, be frozen, be killed, and come back.
//
//	            acquire                     release, break
//	free ────────────────────▶ held ─────────────────────────▶ free
//	 ▲                        │    ▲                             (the fence is closed)
//	 │                 expiry │    │ acquire by another: the fence is raised,
//	 │                        ▼    │ the late holder is shut out
//	 └──────────────────── expired ┘
//	    release, break     (the fence is open: a late holder that nobody has replaced may finish)
//
// # The trust window
//
// A lease is live from its grant to its expiry, by the database's clock. A client that is told of it learns the past: it may
// be paused for an hour between reading "held until 12:00:30" and writing. That is why a write carries its
// token and is judged in the transaction that applies it, and not before.
//
// # What happens on failures
//
//   - The client dies: its lease expires; the next acquire is granted without waiting for anything.
//   - The gateway dies: a statement whose commit reached the database is in force, any other left no trace. A client that got no
//     answer sends the same numbered write again and gets the first answer, or the write is applied then.
//   - The connection breaks after a commit was sent: [UnavailableError] with OutcomeUnknown. Never a guess.
//   - The database crashes: it recovers to exactly the acknowledged commits (plus, possibly, unacknowledged ones).
//   - A standby that lacks the last commits is promoted: the next grant notices, and tokens leap past all that the lost primary
//     can have granted.
//   - Rejections are recorded after the verdict, in the background: the death of a gateway may lose the last tenth of a second of
//     the record, never a verdict.
package store
