package store

import (
	"cmp"
	"fmt"
	"time"
)

// QueueMax is the most waiters that are shown of a lock.
const QueueMax = 1000

// LockState is the state of a lock.
type LockState string

// The states of a lock.
const (
	LockFree    LockState = "free"    // nobody may write
	LockHeld    LockState = "held"    // a lease is live
	LockExpired LockState = "expired" // the holder is late, and nobody has replaced it
)

// LockActive selects, in a LockQuery, the locks that are held or have waiters.
const LockActive LockState = "active"

// Lock is a lock as others may see it.
type Lock struct {
	Lock        Name
	State       LockState
	Token       int64    // the newest granted on it
	Holders     []Lease  // without their IDs; none where it is free
	Queue       []Waiter // in their order, as many as were asked for
	QueueLength int64    // how many wait
	// SortKey is the value that the list was sorted by; see LockQuery.AfterValue.
	SortKey int64
}

// Holder is the first of the Holders, nil where there is none. An exclusive lease has no other beside it.
func (l Lock) Holder() *Lease {
	if len(l.Holders) == 0 {
		return nil
	}
	return &l.Holders[0]
}

// ChangesChannel is where fence.note_change notifies of changes of watched locks; the payload is the key of the lock.
const ChangesChannel = "fence_changes"

// WatchState is the state of a watched lock, without its Queue. One that was never granted is free, with token 0.
type WatchState struct {
	Lock    Lock
	Version int64 // greater than that of every state read before
}

// Waiter is an acquire in the queue for a lock.
type Waiter struct {
	OwnerID   string
	Principal string // see AcquireRequest
	Mode      Mode
	Scope     Scope
	QueuedAt  time.Time
}

// LockSort is what locks are sorted by. Locks with the same value are in byte order of their names.
type LockSort string

// The sorts of locks.
const (
	LocksByName LockSort = "name"
	// of several holders the one whose lease lasts longest; locks without a holder come last
	LocksByExpiry  LockSort = "expires_at"
	LocksByGrant   LockSort = "granted_at"    // of several holders the latest; locks without a holder come last
	LocksByToken   LockSort = "fencing_token" // the newest granted on the lock
	LocksByWaiters LockSort = "queue"         // how many wait
)

// LockQuery selects locks.
type LockQuery struct {
	Prefix   string    // of the name, any text
	Contains string    // any text that is in the name, or in the owner of a holder
	OwnerID  string    // of a holder
	State    LockState // "": any

	Within []string // only these names and those below them; nil: all

	Sort       LockSort // "": by name
	Descending bool

	// After is the name of the last lock that was seen; "": none. Where the sort is not by name, AfterValue is that lock's
	// SortKey.
	After      string
	AfterValue int64

	Limit    int // 1 to PageMax
	QueueMax int // how many waiters are shown of each lock, 0 to the constant QueueMax
}

// Check returns the query with its defaults, or ErrInvalid naming the field and its limit.
func (q LockQuery) Check() (LockQuery, error) {
	q.Sort = cmp.Or(q.Sort, LocksByName)
	switch q.State {
	case "", LockFree, LockHeld, LockExpired, LockActive:
	default:
		return q, fmt.Errorf("%w: state must be free, held, expired or active", ErrInvalid)
	}
	switch q.Sort {
	case LocksByName, LocksByExpiry, LocksByGrant, LocksByToken, LocksByWaiters:
	default:
		return q, fmt.Errorf("%w: sort must be name, expires_at, granted_at, fencing_token or queue", ErrInvalid)
	}
	if q.QueueMax < 0 || q.QueueMax > QueueMax {
		return q, fmt.Errorf("%w: queue_max is %d, it must be 0 to %d", ErrInvalid, q.QueueMax, QueueMax)
	}
	return q, cmp.Or(
		checkText("contains", q.Contains, 0, NameBytesMax),
		checkText("owner_id", q.OwnerID, 0, OwnerBytesMax),
		checkLimit(q.Limit))
}

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
