// Package waitqueue makes acquires wait: first come, first served, over all gateways.
//
// The queue of a lock is in the database. It decides the order, and whose turn it is (see fence.acquire_lease and
// Store.GrantNext). A [Queue] keeps the callers of one process with their tickets. It asks for a grant when a
// notification, a timer or the poll says that it may be the turn of one of them, and delivers the outcome. A release
// grants to the next of them in its own transaction (ReleaseLease).
//
// # States of a waiter
//
//	          sendAcquire                 notification, timer, poll
//	caller ────────────────▶ queued ───────────────────────────────▶ grantNext ──▶ granted, or refused
//	  │  ▲                   │    ▲                                     │
//	  │  └─── resend ────────┤    └────────── not its turn ─────────────┘
//	  │ granted at once      │
//	  ▼                      │ leaveOnTimeout, leaveOnCancel, leaveOnError
//	lease                    ▼
//	                       left; the database wakes the waiters that only it was blocking
//
// [Queue.Acquire] is this path from top to bottom. A waiter sends its acquire again when its ticket may be lost. It
// carries the same request_id, so it finds the lease or the ticket that it has, if any.
//
// # Invariants
//
//   - P1, P2: only the database grants. No waiter receives a lease that its row in the database does not have.
//   - P8: tickets are granted in order, except that a waiter whose gateway is considered dead is skipped.
//   - Each caller gets exactly one outcome. A lease that no caller takes is given back.
//   - Callers with the same request_id share one ticket and one lease. The last of them to leave gives the lease back.
//   - A process sends at most a few grants at a time, and never two for one lock.
//
// # What happens on each failure
//
//   - A notification is lost: the poll finds the ticket. The timer finds a lease that expires.
//   - The listening connection is lost and made again: every waiter sends its acquire again (RequeueAll).
//   - The database is unreachable: waiters resend until their time is over. A waiter that gives up is removed from the
//     queue when the database is back.
//   - The answer to a grant is lost: the waiters of the lock resend, and find the lease that they were granted.
//   - A grant finds its fence locked: it is sent again after a pause, and takes no turn from other locks meanwhile.
//   - This process freezes, or dies: no heartbeat arrives, and the waiters of other gateways pass its own. After a thaw
//     the tickets count again, and all of them are checked for deadlocks.
//   - The caller leaves at the moment of the grant: the lease is given back, at once or as soon as the database allows.
//   - A wait closes a cycle of owners: the last wait of the cycle is refused with ErrDeadlock (see deadlocks.go).
//
// Statements that the database rolled back (40001, 40P01) are sent again by package postgres alone.
package waitqueue
