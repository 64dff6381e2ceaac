package model

// committing checks the promises that concern a commit, before the entry is added to the history of the database.
func (s *step) committing(d database, e entry) {
	history := s.history(d)
	f := fenceOf(history)
	switch e.kind {
	case grant:
		if f.live {
			s.breaks("P1", "the lease of token %d is live, and token %d is granted", f.granted, e.token)
		}
	case release:
		if e.token != f.granted {
			s.breaks("P6", "a release with token %d ends the lease of token %d", e.token, f.granted)
		}
	case write:
		s.committingWrite(d, history, e)
	}
}

func (s *step) committingWrite(d database, history []entry, e entry) {
	if d == d2 && !s.model.on(SynchronousReplication) {
		s.fencedBy(s.lost(), e)
	}
	s.fencedBy(history, e)
	granted := false
	for _, before := range history {
		granted = granted || before.kind == grant && before.token == e.token
		if before.kind == write && before.token == e.token && before.sequence == e.sequence {
			s.breaks("P10", "two writes with the number %d.%d are committed", e.token, e.sequence)
		}
		if before.kind == release && before.token == e.token && before.answered {
			s.breaks("the rule, step 3", "token %d was released, and a write with it is committed", e.token)
		}
	}
	if !granted {
		s.breaks("P5", "token %d was never granted, and a write with it is committed", e.token)
	}
}

// fencedBy checks a write against the grants that clients received.
func (s *step) fencedBy(grants []entry, e entry) {
	for _, g := range grants {
		if g.kind == grant && g.answered && g.token > e.token {
			s.breaks("P3", "token %d was granted, and a write with token %d is committed", g.token, e.token)
		}
	}
}

// rejecting checks that no client receives a rejection of a retry of the last write, nor of a holder's write.
func (s *step) rejecting(r request) {
	history := s.history(r.database)
	f := fenceOf(history)
	for position, e := range history {
		isLast := uint8(position) == f.at || !s.model.on(RetryInTime)
		if e.operation == r.operation && isLast {
			s.breaks("P10", "%v is committed, and its retry is rejected", r.operation)
		}
	}
	for _, e := range history {
		if e.kind == write && e.token == r.token && e.sequence >= r.sequence {
			return
		}
	}
	if r.token == f.granted && f.open {
		s.breaks("the rule", "the holder's %v is rejected", r.operation)
	}
}

// telling checks the promises that concern an acknowledgement, before it.
func (s *step) telling(r request) {
	e := *s.entry(r.database, r.position)
	if r.other != e.other {
		s.breaks("P4", "%v is acknowledged, and %v is committed", r.operation, e.operation)
	}
	if e.kind == grant {
		s.tokensRise(r, e)
	}
	if !e.late {
		return
	}
	for _, newer := range s.logs[d2].entries {
		if !newer.answered {
			continue
		}
		if e.kind == write {
			s.fencedBy([]entry{newer}, e)
		}
		s.breaks("P9", "the old primary acknowledges what the new one does not have")
	}
}

// tokensRise checks a grant against those that were made before it, and that clients received.
func (s *step) tokensRise(r request, e entry) {
	before := s.history(r.database)[:r.position]
	var elsewhere []entry
	switch {
	case e.late:
		elsewhere = s.logs[d2].entries[:]
	case r.database == d2:
		elsewhere = s.lost()
	}
	for _, grants := range [][]entry{before, elsewhere} {
		for _, g := range grants {
			if g.kind == grant && g.answered && g.token >= e.token && (e.late || !g.late) {
				s.breaks("P2", "token %d is granted after token %d was", e.token, g.token)
			}
		}
	}
}

// promoting checks that the standby has everything that was acknowledged, if replication is synchronous.
func (s *step) promoting() {
	if !s.synchronous {
		return
	}
	for _, e := range s.lost() {
		if e.answered {
			s.breaks("P14", "%v was acknowledged, and the promoted standby does not have it", e.operation)
		}
	}
}

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
