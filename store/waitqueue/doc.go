// Package waitqueue makes acquires wait: first come, first served, over all gateways.
//
// The queue of a lock is in the database. It decides the order, and whose turn it is (see fence.acquire_lease and
// Store.GrantNext). A [Queue] keeps the callers of one process with their tickets. It asks for a grant when a
// notification, a timer or the poll says that it may be the turn of one of them, and delivers the outcome. A release
// grants to the next of them in its own transaction ([Queue.ReleaseLease]).
//
// # States of a waiter
//
// A waiter is one caller. Its state changes only in apply, by this table (transitions); "·" changes nothing:
//
//	          send     ticket   grant    refusal  lost     timeUp   leave
//	sending   ·        queued   granted  again    again    ·        gone
//	again     sending  sending  granted  ·        ·        ·        gone
//	queued    ·        ·        granted  refused  sending  leaving  gone
//	leaving   ·        ·        granted  ·        ·        ·        gone
//	granted   ·        ·        ·        ·        ·        ·        gone
//	refused   ·        ·        ·        ·        ·        ·        ·
//	gone      ·        ·        ·        ·        ·        ·        ·
//
// The states:
//
//   - sending: its acquire is in flight, or will be sent. One that may be in the queue has the same request_id as before,
//     so it finds the lease or the ticket that it has, and keeps its place (P8).
//   - again: as sending; but the answer in flight may not know of something, so it is sent once more after that.
//   - queued: its ticket is in the queue, and no news is lost. Only such a waiter sleeps.
//   - leaving: its time is over. It leaves the queue, and then takes the lease that it was granted before, if any.
//   - granted: it has a lease. The caller gets it, unless it is gone: then the lease is given back.
//   - refused: the database has removed its ticket, for a reason that the caller gets.
//   - gone: no caller is left that could take a lease.
//
// What the events mean, and what holds after them:
//
//   - send: the acquire is sent. Its answer knows of what was lost before.
//   - ticket: the answer is a ticket. If that is a new one, the wait is checked for deadlocks (see deadlocks.go).
//   - grant: the answer to an acquire, or to a grant, has a lease for the request. All callers here with that request, and
//     its owner_id and principal (P6), have the same lease: the last to leave without it gives it back. A lease that no
//     caller takes is given back at once. The database keeps it if an acquire has found it meanwhile (fence.give_back),
//     but not from a caller that leaves and whose request_id is this process's own: nobody else can have it.
//   - refusal: a grant, or the search for cycles, has removed the ticket. An acquire in flight may have a newer one, or be
//     another owner's: it is sent once more.
//   - lost: the ticket, a notification, or the answer to a grant may be lost (P14).
//   - timeUp, leave: its time is over; its caller is gone, or gets an error. Its row is removed, at once or as soon as the
//     database is reachable, unless another caller here waits with the request. That wakes the waiters behind it.
//
// # The queue of a lock
//
// A wake makes a grant due: by a notification, the timer, the poll, a result that says there is more, or a grant that
// failed. It is sent as soon as none of this process is in flight for the lock, and is not due any more then: no wake is
// lost. It is about the rows in the database: it may end the wait of a caller whose ticket is not known here yet. An
// acquire whose row comes later sees itself whether the lock is free.
//
// # Invariants
//
//   - P1, P2: only the database grants. No waiter receives a lease that its row in the database does not have.
//   - P8: tickets are granted in order, except that a waiter whose gateway is considered dead is skipped.
//   - P13: a process has at most grantsMax grants in flight. A lock whose fence is locked takes no turn from others.
//
// # What happens on each failure
//
//   - A notification is lost: the poll finds the ticket. The timer finds a lease that expires.
//   - The listening connection is lost and made again: every waiter is lost (RequeueAll).
//   - The database is unreachable: waiters resend until their time is over. What they owe it then is paid later (debt).
//   - This process freezes, or dies: no heartbeat arrives, and the waiters of other gateways pass its own (P9). After a
//     thaw the tickets count again, and all of them are checked for deadlocks.
//
// Statements that the database rolled back (40001, 40P01) are sent again by package postgres alone.
package waitqueue
