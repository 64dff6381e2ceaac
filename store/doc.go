// Package store is the domain of fencegate and its one home in PostgreSQL.
//
// # What is authoritative
//
// The fence: one row per resource that holds the newest token granted on it, whether that grant may still write, and
// the token and sequence of the last accepted write. Every decision is made by the SQL functions of package migrations
// with that row locked, by the database's clock. Nothing in this package admits a write, remembers who holds what, or
// decides by a clock of its own: any number of Stores, in any number of processes, may work on one database, be frozen,
// be killed, and come back. A [Service] remembers who is shut out for good, and spares the database the question: that
// can only refuse what the rule would refuse.
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
// A lease is live from its grant to its expiry, by the database's clock. A client that is told of it learns the past:
// it may be paused for an hour between reading "held until 12:00:30" and writing. That is why a write carries its token
// and is judged in the transaction that applies it, and not before.
//
// # Waiting
//
// A [Service] is a Store whose acquires may wait. The line is in the database (see fence.acquire and fence.grant_next):
// which place is next is decided there, and a Service only keeps its own callers' places and claims them when it is
// told to.
//
//	            ask                     notification, timer, poll
//	caller ────────────▶ place in line ───────────────────────────▶ claim ──▶ lease
//	                        │      ▲                                  │
//	   ctx ended, time over │      └────────── not its turn ──────────┘
//	                        ▼
//	                      leave, and wake whoever stood behind
//
// Notifications may be lost, listeners cut off, Services frozen and killed: a place whose Service is not heard of is
// passed over, a place that may be lost is asked for again by its request_id, and a lease that nobody is left to hold
// is given back.
//
// # What happens on failures
//
//   - The client dies: its lease expires; the next acquire is granted without waiting for anything.
//   - The gateway dies: a statement whose commit reached the database is in force, any other left no trace. A client
//     that got no answer sends the same numbered write again and gets the first answer, or the write is applied then.
//   - A gateway dies with waiters: their places are passed over after a few seconds, and those who ask again elsewhere
//     are served there.
//   - The connection for notifications breaks: lines are served by a slow poll until there is another one, and then
//     everybody asks again.
//   - The connection breaks after a commit was sent: [UnavailableError] with OutcomeUnknown. Never a guess.
//   - The database crashes: it recovers to exactly the acknowledged commits (plus, possibly, unacknowledged ones), but
//     for the last tenths of a second of renewals and places in lines, which do not wait for the disk.
//   - A standby that lacks the last commits is promoted: the next grant notices, and tokens jump past all that the lost
//     primary can have granted.
//   - Rejections are recorded after the verdict, in the background: the death of a gateway may lose the last tenth of a
//     second of the record, never a verdict.
package store
