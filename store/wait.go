package store

import "time"

// QueueResult is the outcome of a wait, or what blocks the waiter.
type QueueResult struct {
	Ticket    int64
	RequestID string // of the lease that was granted, or of the session that has ended
	// Done says that the wait has ended: with Lease, or with Err.
	Done  bool
	Lease Lease
	Err   error
	// Left is the remaining time of the granted lease, or of the blocking one.
	Left time.Duration
	// More is not about a waiter: more can be granted at once.
	More bool
}

// DeadlockOutcome is what BreakDeadlock found.
type DeadlockOutcome string

// The outcomes of BreakDeadlock. Any other says that there is no cycle.
const (
	DeadlockBroken  DeadlockOutcome = "deadlock" // the waiter was removed
	DeadlockAgain   DeadlockOutcome = "again"    // another search is at work on it
	DeadlockYounger DeadlockOutcome = "younger"  // a later wait in the cycle is to be refused instead
)

// Limits of a graph of waits.
const (
	WaitsMax = 200 // waits that are shown
	// WaitForMax is how many blockers of each kind are shown for one waiter.
	WaitForMax = 20
)

// Relation says why a waiter waits for an owner.
type Relation string

// The relations.
const (
	Holds  Relation = "holds"  // has a lease that runs
	Before Relation = "before" // is before it in the queue
)

// Blocker is an owner that a waiter waits for. Its lock differs from the waiter's if one of the two is requested with
// its subtree.
type Blocker struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Lock      Name
	Relation  Relation
}

// WaitOf is a waiter and the owners that block it.
type WaitOf struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Lock      Name
	Mode      Mode
	Scope     Scope
	QueuedAt  time.Time
	For       []Blocker // the holders, then those before, the nearest last
}

// WaitGraph says which waiters wait for which owners, the first in the queue first. Its edges are those in which a
// deadlock would be seen.
type WaitGraph struct {
	Waits     []WaitOf
	Truncated bool // there are more waits, or more in the way of one
}
