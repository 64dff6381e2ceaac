package spec

// Switch is a safeguard of the protocol, or an assumption about how it is run, that [World.Explore] can do without.
type Switch string

// The safeguards, in the order of the table in README.md. BelowAfterLocks is one only where fences adopt the tokens of
// subtrees: a grant looks for open fences below after it has locked the subtrees' rows, of its own name and above.
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
