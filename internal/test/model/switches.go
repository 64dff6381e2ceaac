package model

// Switch is a safeguard of the protocol, or an assumption about how it is run, that Explore can do without.
type Switch string

// The safeguards, in the order of the table in README.md.
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
	LateAnswerUnknown, SynchronousReplication, PromotionSeen, RetryInTime,
}
