package spec

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// Entry is a commit in the log of a database: an operation with the token that it was granted or written with.
type Entry struct {
	*Op
	Answered bool // a client received the answer
	Late     bool // an old primary committed it, after the new one had acknowledged something

	after *State // it is what a standby has that received the log up to here
}

func (e Entry) grants() bool { return e.Kind == Acquire && e.Token > 0 }

// covers reports whether a lease on a name concerns another name: it is the same, or below the lease's subtree.
func (o *Op) covers(name store.Name) bool {
	return o.Name == name || o.Scope == store.Subtree && isBelow(name, o.Name)
}

func (l Lease) covers(name store.Name) bool { return (&Op{Name: l.Lock, Scope: l.Scope}).covers(name) }

// Each promise returns how it is broken, or "".

// oneHolder is P1: no two leases run that conflict.
func oneHolder(s *State) string {
	var running []Lease
	for _, of := range s.resources {
		for _, lease := range of.resource.leases {
			if lease.End == Running {
				running = append(running, lease)
			}
		}
	}
	for i, one := range running {
		for _, other := range running[:i] {
			if conflict(Op{Name: one.Lock, Mode: one.Mode, Scope: one.Scope},
				Op{Name: other.Lock, Mode: other.Mode, Scope: other.Scope}) {
				return fmt.Sprintf("the leases of tokens %d and %d are live", other.Token, one.Token)
			}
		}
	}
	return ""
}

// tokensRise is P2: of the grants that were made before, and whose tokens clients know, none is as great.
func tokensRise(grant Entry, before []Entry) string {
	for _, earlier := range before {
		if earlier.grants() && earlier.Answered && (earlier.covers(grant.Name) || grant.covers(earlier.Name)) &&
			earlier.Token >= grant.Token && (grant.Late || !earlier.Late) {
			return fmt.Sprintf("token %d is granted after token %d was", grant.Token, earlier.Token)
		}
	}
	return ""
}

// fenced is P3: a write that is committed has no older token than a grant that a client knows, on its name or on the lock
// whose subtree it is in by its own grant.
func fenced(write *Op, log []Entry) string {
	lock := write.Name
	for _, grant := range log {
		switch {
		case !grant.grants():
		case grant.Token == write.Token && grant.covers(write.Name):
			lock = grant.Name
		case grant.Answered && grant.Token > write.Token && (grant.covers(write.Name) || grant.covers(lock)):
			return fmt.Sprintf("token %d was granted, and a write with token %d is committed", grant.Token, write.Token)
		}
	}
	return ""
}

// acknowledgedAsSent is P4: what is acknowledged is what was committed.
func acknowledgedAsSent(sent, committed *Op) string {
	if sent.Value != committed.Value {
		return fmt.Sprintf("%v is acknowledged, and %v is committed", said{sent}, said{committed})
	}
	return ""
}

// wasGranted is P5: a write that is committed has a token that was granted.
func wasGranted(write *Op, log []Entry) string {
	if slices.ContainsFunc(log, func(e Entry) bool {
		return e.grants() && e.Token == write.Token && e.covers(write.Name)
	}) {
		return ""
	}
	return fmt.Sprintf("token %d was never granted, and a write with it is committed", write.Token)
}

// ownLease is P6: a renewal or a release concerns no lease but its own, and that only while it is live or, for a
// release, nobody's yet.
func ownLease(op *Op, before, after *State) string {
	switch op.Kind {
	case KeepAlive:
		if lost := before.sessionLost(op.Session); lost != (Answer{}) {
			return "a session that is over is kept alive"
		}
		return ""
	case Renew, Release:
	default:
		return ""
	}
	for _, was := range before.Leases() {
		switch is, _ := after.Resource(was.Lock).lease(was.Token); {
		case is.Token != op.Token && is != was:
			return fmt.Sprintf("a %s with token %d ends the lease of token %d", op.Kind, op.Token, was.Token)
		case was.End != Running && is.End == Running:
			return fmt.Sprintf("a %s with token %d makes the lease run again, which was %s", op.Kind, op.Token, was.End)
		}
	}
	return ""
}

// grantable is P7: a lock is refused only for what runs, or waits.
func grantable(op *Op, s *State) string {
	running := slices.ContainsFunc(s.against(*op), func(lease Lease) bool { return lease.End == Running })
	if running || len(s.queue) > 0 {
		return ""
	}
	return "nothing runs, and an acquire is not granted"
}

// runsOut is P7 for sessions: no lease runs in a session that is over, since it would never run out.
func runsOut(s *State) string {
	for _, session := range s.sessions {
		if session.End != Running && s.leasesIn(session.ID) > 0 {
			return fmt.Sprintf("a session is %s, and a lease runs in it", session.End)
		}
	}
	return ""
}

// waiting are the acquires that wait by the log, in order. They leave with their session.
func waiting(s *State, log []Entry) (waiting []*Op) {
	for _, e := range log {
		switch {
		case e.Kind == Acquire && e.Token == 0 && (e.Session == uuid.Nil || s.sessionLost(e.Session) == Answer{}):
			waiting = append(waiting, e.Op)
		case e.Kind == Acquire || e.Kind == Leave:
			waiting = slices.DeleteFunc(waiting, func(op *Op) bool { return op.Request == e.Request })
		}
	}
	return waiting
}

// inOrder is P8: a grant passes nobody that waits.
func inOrder(grant *Op, s *State, log []Entry) string {
	for _, ahead := range waiting(s, log) {
		if ahead.Request == grant.Request {
			break
		}
		if conflict(*ahead, *grant) {
			return fmt.Sprintf("%s waits, and %s is granted the lock", ahead.Owner, grant.Owner)
		}
	}
	return ""
}

// servedInTurn is P8: a waiter is served as soon as nothing runs that is in its way, and nobody waits before it.
func servedInTurn(s *State, log []Entry) string {
	waiting := waiting(s, log)
	turns := s.Turns()
	for place, op := range waiting {
		ahead := slices.ContainsFunc(waiting[:place], func(ahead *Op) bool { return conflict(*ahead, *op) })
		running := slices.ContainsFunc(s.against(*op), func(lease Lease) bool { return lease.End == Running })
		if !ahead && !running && !slices.ContainsFunc(turns, func(turn Op) bool { return turn.Request == op.Request }) {
			return fmt.Sprintf("%s waits, though it is its turn", op.Owner)
		}
	}
	return ""
}

// noCycle is P8: some owner that waits can be granted its lock if all do that wait for nothing. Each waits for one
// lock.
func noCycle(s *State) string {
	stuck := slices.Clone(s.queue)
	for before := 0; before != len(stuck); {
		before = len(stuck)
		stuck = slices.DeleteFunc(stuck, func(waits Op) bool {
			return !slices.ContainsFunc(s.against(waits), func(lease Lease) bool {
				return lease.End == Running && lease.Owner != waits.Owner &&
					slices.ContainsFunc(stuck, func(other Op) bool { return other.Owner == lease.Owner })
			})
		})
	}
	if len(stuck) == 0 {
		return ""
	}
	return fmt.Sprintf("%s waits for ever", stuck[0].Owner)
}

// appliedOnce is P10: a number is committed once.
func appliedOnce(write *Op, log []Entry) string {
	for _, e := range log {
		if e.Kind == Put && e.Name == write.Name && e.Token == write.Token && *e.Sequence == *write.Sequence {
			return fmt.Sprintf("two writes with the number %d.%d are committed", e.Token, *e.Sequence)
		}
	}
	return ""
}

// retryAccepted is P10: the retry of a write that is committed is not rejected; if it comes in time, before another
// write.
func retryAccepted(write *Op, log []Entry, inTime bool) string {
	last := true
	for _, e := range slices.Backward(log) {
		if e.Kind != Put || e.Name != write.Name {
			continue
		}
		if e.Token == write.Token && *e.Sequence == *write.Sequence && e.Value == write.Value && (last || !inTime) {
			return fmt.Sprintf("%v is committed, and its retry is rejected", said{write})
		}
		last = false
	}
	return ""
}

// noTrace is P12: what is rejected changes nothing.
func noTrace(op *Op, before, after *State) string {
	if before.Equal(*after) {
		return ""
	}
	return fmt.Sprintf("%v is rejected, and leaves a trace", said{op})
}

// notAfterItsEnd is step 3 of the rule: a write is not committed after a client knows that its lease, or the session of
// its lease, has ended.
func notAfterItsEnd(write *Op, log []Entry) string {
	session := uuid.Nil
	for _, e := range log {
		switch {
		case e.grants() && e.Token == write.Token:
			session = e.Session
		case e.Answered && e.Kind == Release && e.Token == write.Token:
			return fmt.Sprintf("token %d was released, and a write with it is committed", write.Token)
		case e.Answered && e.Kind == EndSession && e.Session == session:
			return fmt.Sprintf("the session of token %d was ended, and a write with it is committed", write.Token)
		}
	}
	return ""
}

// holderWrites is the rule: the next number of the newest grant is admitted, until that is released, its session is over,
// or there is a newer grant on its lock.
func holderWrites(write *Op, s *State, log []Entry) string {
	holder := Entry{Op: &Op{}}
	for _, e := range log {
		switch {
		case e.Kind == Put && e.Name == write.Name && e.Token == write.Token && *e.Sequence >= *write.Sequence:
			return ""
		case e.grants() && (e.covers(write.Name) || e.Name == holder.Name):
			holder = e
		case e.Kind == Release && e.Token == holder.Token:
			return ""
		}
	}
	if holder.Session != uuid.Nil && s.sessionLost(holder.Session) != (Answer{}) {
		return ""
	}
	if holder.Token == write.Token && holder.covers(write.Name) && holder.Mode != store.Shared {
		return fmt.Sprintf("the holder's %v is rejected", said{write})
	}
	return ""
}

// durable is P14: a standby that is promoted has what was acknowledged.
func durable(lost []Entry) string {
	for _, e := range lost {
		if e.Answered {
			return fmt.Sprintf("%v was acknowledged, and the promoted standby does not have it", said{e.Op})
		}
	}
	return ""
}
