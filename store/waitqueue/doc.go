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
//   - sending: its acquire is in flight, or will be sent: its ticket is not known. One that may be in the queue carries
//     the same request_id, so it finds the lease or the ticket that it has, if any, and keeps its place (P8).
//   - again: as sending, but something happened that the answer in flight may not know of. It is sent again after it.
//   - queued: its ticket was in the queue, and no news is lost. Only such a waiter sleeps.
//   - leaving: its time is over. It leaves the queue, and then takes the lease that it was granted before, if any.
//   - granted: the caller has a lease, or will have it when it wakes up.
//   - refused: the database has removed its ticket, for a reason that the caller gets.
//   - gone: no caller is left that could take a lease.
//
// The events, and what holds after them:
//
//   - send: the acquire is sent. What was lost before, its answer knows.
//   - ticket: the answer is a ticket. If it is a new one, the wait is checked for deadlocks (see deadlocks.go). If a wake
//     of the lock came since the last grant, one is made now: the wake may have been for this ticket.
//   - grant: the answer, or a grant, has a lease for the request. Every caller here with the same request and owner gets
//     the same lease, which is given back when the last of them has left without it. A lease that no caller takes is
//     given back at once. The database does not take back one that an acquire has found (fence.give_back).
//   - refusal: a grant or the search for cycles removed the ticket. A caller whose acquire is in flight asks again: its
//     answer may be a newer ticket, or another owner's refusal.
//   - lost: notifications may be lost, or the ticket, or the answer to a grant. The acquire is sent again.
//   - timeUp, leave: the time is over; the caller is gone, or gets an error. The row in the database is removed, at once
//     or as soon as that is reachable, unless another caller here waits with the same request (debt). Waiters that only
//     it was blocking are woken by the database.
//
// # The queue of a lock
//
// It has a grant in flight or not (granting), and one may be due. A wake makes one due: a notification, the timer, the
// poll, a result that says there is more, or a grant that failed without effect. It is sent once a ticket is known and
// none is in flight, and it is due no more when it is sent. So no wake is lost, and no two grants of a process are in
// flight for one lock.
//
// # Invariants
//
//   - P1, P2: only the database grants. No waiter receives a lease that its row in the database does not have.
//   - P6: a lease is delivered only to callers with its owner_id and principal.
//   - P8: tickets are granted in order, except that a waiter whose gateway is considered dead is skipped.
//   - P13: a process has at most grantsMax grants in flight; locks take turns.
//   - Each caller gets exactly one outcome.
//
// # What happens on each failure
//
//   - A notification is lost: the poll finds the ticket. The timer finds a lease that expires.
//   - The listening connection is lost and made again: every waiter is lost (RequeueAll).
//   - The database is unreachable: waiters resend until their time is over. What they then owe it is done when it is
//     back.
//   - The answer to a grant is lost: the waiters of the lock are lost, and find the lease that they were granted (P14).
//   - A grant finds its fence locked: it is sent again after a pause, and takes no turn from other locks meanwhile.
//   - This process freezes, or dies: no heartbeat arrives, and the waiters of other gateways pass its own (P9). After a
//     thaw the tickets count again, and all of them are checked for deadlocks.
//
// Statements that the database rolled back (40001, 40P01) are sent again by package postgres alone.
package waitqueue
