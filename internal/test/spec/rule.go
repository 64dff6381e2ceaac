package spec

import (
	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// judge is the rule's steps 1 to 6, in their order. It returns no answer for a token that is admitted.
func (s State) judge(op Op) Answer {
	r, newest, policy := s.Resource(op.Name), s.deciding(op), s.Policy(op.Name)
	builtin := policy.Authority != store.AuthorityExternal
	var verdict store.Verdict
	switch {
	case op.Token == 0:
		verdict = store.VerdictTokenRequired // step 1
	case builtin && op.Token > newest.token && s.has(TokenWasGranted):
		verdict = store.VerdictTokenUnknown // step 2
	case builtin && op.Token < newest.token && s.has(GrantRaisesFence):
		verdict = store.VerdictTokenStale // step 3
	case builtin && op.Token == newest.token && !newest.open && s.has(ReleaseClosesFence):
		verdict = store.VerdictTokenStale // step 3
	case !s.isFollowedBy(op, r, policy):
		verdict = store.VerdictTokenStale // step 4
	case builtin && (op.LeaseID != uuid.Nil || policy.RequireLeaseID) && op.LeaseID != newest.ID:
		verdict = store.VerdictLeaseMismatch // step 5
	case builtin && policy.RequireLiveLease && newest.End != Running:
		verdict = store.VerdictLeaseExpired // step 6
	default:
		return Answer{}
	}
	answer := Answer{
		Code: string(verdict), GrantedToken: newest.token, LastToken: r.LastToken, LastSequence: r.LastSequence,
	}
	if verdict == store.VerdictTokenStale {
		answer.Reason = r.staleReason(op, newest, builtin)
	}
	return answer.Told()
}

// isFollowedBy is step 4: the write comes after the last accepted one.
func (s State) isFollowedBy(op Op, r Resource, policy store.Policy) bool {
	switch sequence := op.sequence(); {
	case policy.Rule == store.RuleSameToken && op.Sequence == nil:
		return op.Token >= r.LastToken
	case !s.has(NumbersCompareAsPairs):
		return sequence > r.LastSequence
	case op.Token != r.LastToken:
		return op.Token > r.LastToken
	case sequence == r.LastSequence:
		return !s.has(NumberUsedOnce)
	default:
		return sequence > r.LastSequence || !s.has(NumbersRise)
	}
}

// staleReason is the reason of token_stale: a newer grant or write, a shared lease, a lease that was ended, or a number
// that was used before. Under an external authority, grants made here are not newer.
func (r Resource) staleReason(op Op, newest force, builtin bool) string {
	switch {
	case op.Token < r.LastToken || builtin && op.Token < newest.token:
		return "superseded"
	case builtin && !newest.open && newest.Mode == store.Shared:
		return "shared"
	case builtin && !newest.open:
		return "released"
	}
	return "reused"
}

// precondition is step 7, and that what is deleted must be there.
func (r Resource) precondition(op Op) Answer {
	record, exists := r.records[op.Key]
	met := true
	if op.Expect != nil {
		switch *op.Expect {
		case store.ExpectNone:
			met = !exists
		case store.ExpectAny:
			met = exists
		default:
			met = exists && record.Version == *op.Expect
		}
	}
	switch {
	case !met:
		return Answer{Code: string(store.VerdictVersionMismatch), Version: record.Version}
	case op.Kind == Delete && !exists:
		return Answer{Code: CodeNotFound}
	}
	return Answer{}
}

// isReplayedBy reports whether a write repeats the last accepted one: the same explicit number, the same content. It is
// asked before step 1: a retry of what was applied is recognised also after a newer grant.
func (s State) isReplayedBy(op Op, content string) bool {
	newest := s.deciding(op)
	return s.repeatsNumber(op) && content != "" && s.has(ReplayRecognised) &&
		(content == s.Resource(op.Name).lastContent || !s.has(ReplayOfSameContent)) &&
		(s.has(ReplayBeforeFence) || op.Token == newest.token && newest.open)
}

// repeatsNumber reports whether a write has the explicit number of the last accepted one.
func (s State) repeatsNumber(op Op) bool {
	r := s.Resource(op.Name)
	return op.Token != 0 && op.Sequence != nil && op.Token == r.LastToken && *op.Sequence == r.LastSequence
}

func (o Op) sequence() int64 {
	if o.Sequence == nil {
		return 0
	}
	return *o.Sequence
}
