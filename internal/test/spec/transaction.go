package spec

import (
	"slices"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// How a transaction with an older snapshot was judged, if not as things are now.
const (
	JudgedBefore = "before" // as things were when it began; it may be refused so, but not admitted
	JudgedFailed = "failed" // it may have to be repeated, if something has changed since
)

// guard decides a transaction of a client of SQL that writes to one resource, by the rule. What it did not admit, changes
// nothing (P11). With an older snapshot it is admitted only if it is so now (P3).
func (s State) guard(op Op, chosen Choice) (State, Answer) {
	began := s.begun
	s.begun = nil
	if !op.Late || began == nil {
		began = &snapshot{State: s, level: op.Level}
	}
	switch chosen.Judged {
	case JudgedFailed:
		_, answer := began.transaction(op)
		unknown := began.level != "" && answer.Code == string(store.VerdictTokenUnknown) // it may have been granted since
		if unknown || !s.sameSince(*began, op) {
			return s, Answer{Code: CodeSnapshot}
		}
		return s, Answer{Code: "no failure: nothing has changed since the snapshot"}
	case JudgedBefore:
		if _, answer := began.transaction(op); began.level != "" && answer.Code != CodeAdmitted {
			return s, answer
		}
	}
	return s.transaction(op)
}

// HasBegun reports whether a transaction of a client of SQL has begun, with a snapshot that may be older than a change.
func (s State) HasBegun() bool { return s.begun != nil }

// sameSince reports whether nothing has changed that a transaction reads since it began. A serializable one may read more.
func (s State) sameSince(began snapshot, op Op) bool {
	switch began.level {
	case "":
		return true
	case Levels[1]:
		return !slices.ContainsFunc(began.asked, func(name store.Name) bool { return name == op.Name || isBelow(op.Name, name) }) &&
			!slices.ContainsFunc(s.around(op.Name), func(name store.Name) bool {
				return !s.Resource(name).equal(began.Resource(name))
			})
	}
	return s.Equal(began.State) && len(began.asked) == 0
}

// transaction admits a transaction, in the way that the client chose.
func (s State) transaction(op Op) (State, Answer) {
	if op.Way == Undone || op.Way == Unadmitted || op.Token == 0 {
		return s, Answer{Code: string(store.VerdictTokenRequired)}
	}
	guarded := op
	guarded.Key = ""
	next, answer := s.write(guarded)
	if answer.Code != CodeAdmitted || answer.Replayed || op.Key == "" {
		return next, answer
	}
	return next.guardBelow(s, op)
}

// guardBelow admits the write to a name below the guarded one, by the token of a subtree lease: the same write, to another
// fence. If it is refused, so is all.
func (s State) guardBelow(before State, op Op) (State, Answer) {
	if !slices.ContainsFunc(s.resources, func(of named) bool {
		return of.resource.opensBelow() && of.resource.subtree == op.Token && (of.name == op.Name || isBelow(op.Name, of.name))
	}) {
		return before, Answer{Code: string(store.VerdictTokenRequired)}
	}
	last := s.Resource(op.Name).LastSequence
	if op.Sequence = &last; last == 0 || s.Policy(op.Key).Rule == store.RuleSameToken {
		op.Sequence = nil
	}
	if !s.Policy(op.Name).RequireLeaseID {
		op.LeaseID = uuid.Nil
	}
	op.Name, op.Key, op.Value = op.Key, "", ""
	next, answer := s.write(op)
	if answer.Code != CodeAdmitted {
		return before, answer
	}
	return next, answer
}
