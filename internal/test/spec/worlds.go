package spec

import (
	"time"

	"github.com/fencegate/fencegate/store"
)

// Models are all worlds, each with the number of requests that it is explored with in every run of the tests. What holds
// at REPEATABLE READ holds at SERIALIZABLE, where more transactions fail.
func Models() []Model {
	single := []store.Name{theName}
	return []Model{
		{Name: "failover", Requests: 4, resources: single, menu: fails, failover: true},
		{Name: "renewals", Requests: 5, resources: single, menu: renews},
		{Name: "queue", Requests: 5, resources: single, menu: queues, refuses: true},
		{Name: "deadlock", Requests: 4, resources: []store.Name{"x", "y"}, menu: takesBoth},
		{Name: "sessions", Requests: 5, resources: single, menu: opensSession, refuses: true},
		{Name: "trees-at-read-committed", Requests: 4, resources: tree, menu: locksTree, held: true},
		{Name: "trees-at-repeatable-read", Requests: 4, resources: tree, menu: locksTree, snapshots: true},
	}
}

// fails writes 1.1 and 1.2, sends a write again, reuses a number for other content, releases (perhaps giving up a
// write), or presents a token that nobody was granted.
func fails(w *world, c *client) []*Op {
	switch {
	case c.awaits != nil && c.awaits.Kind == Put:
		return []*Op{c.awaits, c.ends(Release)}
	case c.awaits != nil:
		return nil
	case c.holds != nil:
		return append(c.writes(theName, 2), c.ends(Release))
	case w.forged:
		return []*Op{acquires(theName)}
	}
	return []*Op{acquires(theName), {Kind: Put, Name: theName, Token: forgedToken, Sequence: new(int64(1))}}
}

// renews renews its lease, also late, and writes under it.
func renews(_ *world, c *client) []*Op {
	switch {
	case c.awaits != nil && c.awaits.Kind == Acquire, c.awaits != nil && c.awaits.Kind == Release:
		return nil
	case c.holds != nil:
		return append(c.writes(theName, 1), c.ends(Renew), c.ends(Release))
	}
	return []*Op{acquires(theName)}
}

// queues waits for the lock or tries to take it, and may leave the queue.
func queues(_ *world, c *client) []*Op {
	switch {
	case c.awaits != nil && c.awaits.Kind == Acquire && c.awaits.Wait > 0:
		leave := *c.awaits
		leave.Kind = Leave
		return []*Op{&leave}
	case c.awaits != nil:
		return nil
	case c.holds != nil:
		return []*Op{c.ends(Release)}
	}
	waits := acquires(theName)
	waits.Wait = time.Second
	return []*Op{waits, acquires(theName)}
}

// takesBoth waits for one lock and then for the other.
func takesBoth(_ *world, c *client) (menu []*Op) {
	for _, name := range []store.Name{"x", "y"} {
		if c.awaits == nil && c.acquired < 2 && (c.holds == nil || c.holds.Name != name) {
			waits := acquires(name)
			waits.Wait = time.Second
			menu = append(menu, waits)
		}
	}
	return menu
}

// opensSession takes or waits for the lock in a session, which it keeps alive and ends.
func opensSession(_ *world, c *client) []*Op {
	session := func(kind Kind) *Op { return &Op{Kind: kind, Session: c.session} }
	switch {
	case c.awaits != nil && c.awaits.Kind != Put:
		return nil
	case c.holds != nil:
		return append(c.writes(theName, 1), session(KeepAlive), session(EndSession))
	case c.session[0] == 0:
		return []*Op{session(OpenSession)}
	}
	tries, waits := acquires(theName), acquires(theName)
	tries.Session, waits.Session = c.session, c.session
	waits.Wait = time.Second
	return []*Op{tries, waits, session(EndSession)}
}

var tree = []store.Name{"a", "a/b", "a/b/c"}

// locksTree takes locks of names that are above each other, and of their subtrees, and writes below.
func locksTree(_ *world, c *client) (menu []*Op) {
	switch {
	case c.awaits != nil && c.awaits.Kind == Put:
		return []*Op{c.ends(Release)}
	case c.awaits != nil:
		return nil
	case c.holds != nil:
		for _, name := range tree {
			if c.holds.Mode != store.Shared && c.holds.covers(name) {
				menu = append(menu, c.writes(name, 2)...)
			}
		}
		return append(menu, c.ends(Release))
	}
	for _, name := range tree {
		menu = append(menu, acquires(name))
	}
	upper, lower, shared := acquires("a"), acquires("a/b"), acquires("a/b")
	upper.Scope, lower.Scope, shared.Scope, shared.Mode = store.Subtree, store.Subtree, store.Subtree, store.Shared
	return append(menu, upper, lower, shared)
}

func acquires(name store.Name) *Op {
	return &Op{Kind: Acquire, Name: name, Mode: store.Exclusive, Scope: store.Node}
}

// writes are the next write to a name, if it is not more than the last, and the last number with other content.
func (c *client) writes(name store.Name, last int64) (writes []*Op) {
	wrote := int64(0)
	if c.wrote != nil {
		wrote = *c.wrote.Sequence
		if c.wrote.Value == "" {
			reused := *c.wrote
			reused.Value = "other"
			writes = append(writes, &reused)
		}
	}
	if wrote < last {
		writes = append(writes, &Op{Kind: Put, Name: name, Token: c.holds.Token, Sequence: new(wrote + 1)})
	}
	return writes
}

// ends is a renewal or a release of the lease that the client knows.
func (c *client) ends(kind Kind) *Op {
	return &Op{Kind: kind, Name: c.holds.Name, Owner: c.holds.Owner, Token: c.holds.Token, LeaseID: c.holds.LeaseID}
}

// Switch is a safeguard of the protocol, or an assumption about how it is run, that [World.Explore] can do without.
type Switch string

// The safeguards, in the order of the table in README.md. With BelowAfterLocks, a grant of a subtree looks for open fences
// below after it has locked its own, and those of the subtrees above.
const (
	TokenWasGranted       Switch = "token-was-granted"
	GrantRaisesFence      Switch = "grant-raises-fence"
	ReleaseClosesFence    Switch = "release-closes-fence"
	NumbersCompareAsPairs Switch = "numbers-compare-as-pairs"
	NumbersRise           Switch = "numbers-rise"
	NumberUsedOnce        Switch = "number-used-once"
	ReplayRecognised      Switch = "replay-recognised"
	ReplayBeforeFence     Switch = "replay-before-fence"
	ReplayOfSameContent   Switch = "replay-of-same-content"
	LockUntilCommit       Switch = "lock-until-commit"
	LockBeforeMint        Switch = "lock-before-mint"
	LeaseEndsFirst        Switch = "lease-ends-first"
	ReleaseByHolder       Switch = "release-by-holder"
	TokenJump             Switch = "token-jump"
	WaitForStandby        Switch = "wait-for-standby"
	CancelledWaitUnknown  Switch = "cancelled-wait-unknown"
	ReplayWaits           Switch = "replay-waits"
	LineageMemory         Switch = "lineage-memory"
	LineageMark           Switch = "lineage-mark"
	LateAnswerUnknown     Switch = "late-answer-unknown"
	RenewalOfLiveLease    Switch = "renewal-of-live-lease"
	ExpiryFreesLock       Switch = "expiry-frees-lock"
	TryWaitsItsTurn       Switch = "try-waits-its-turn"
	ServedInOrder         Switch = "served-in-order"
	LeavingFreesPlace     Switch = "leaving-frees-place"
	DeadlockRefused       Switch = "deadlock-refused"
	SessionRunsAtGrant    Switch = "session-runs-at-grant"
	WaitersLeaveWithIt    Switch = "waiters-leave-with-session"
	SessionClosesFences   Switch = "session-closes-fences"
	GrantClosesBelow      Switch = "grant-closes-below"
	GrantChangesAbove     Switch = "grant-changes-above"
	BelowAfterLocks       Switch = "below-after-locks"
)

// The assumptions.
const (
	SynchronousReplication Switch = "synchronous-replication"
	PromotionSeen          Switch = "promotion-seen"
	RetryInTime            Switch = "retry-in-time"
)

// Switches are all switches, in order.
var Switches = []Switch{
	TokenWasGranted, GrantRaisesFence, ReleaseClosesFence, NumbersCompareAsPairs, NumbersRise, NumberUsedOnce,
	ReplayRecognised, ReplayBeforeFence, ReplayOfSameContent, LockUntilCommit, LockBeforeMint, LeaseEndsFirst,
	ReleaseByHolder, TokenJump, WaitForStandby, CancelledWaitUnknown, ReplayWaits, LineageMemory, LineageMark,
	LateAnswerUnknown, RenewalOfLiveLease, ExpiryFreesLock, TryWaitsItsTurn, ServedInOrder, LeavingFreesPlace,
	DeadlockRefused, SessionRunsAtGrant, WaitersLeaveWithIt, SessionClosesFences, GrantClosesBelow, GrantChangesAbove, BelowAfterLocks,
	SynchronousReplication, PromotionSeen, RetryInTime,
}

// has reports whether a safeguard is not left out.
func (s State) has(safeguard Switch) bool { return s.without != safeguard }
