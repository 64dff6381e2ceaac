package storetest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fencegate/fencegate/store"
)

func (r Resource) write(write store.Write, newest force, policy store.Policy) (Resource, Answer) {
	content := contentOf([]store.ResourceOperation{{Resource: write.Resource, Operation: write.Operation}})
	if r.replays(write.WriteToken, content) {
		return r, Answer{Code: CodeAdmitted, Replayed: true, Version: r.newestVersion, Created: r.lastCreated}
	}
	if refused := r.judge(write.WriteToken, newest, policy); refused != (Answer{}) {
		return r, refused
	}
	if refused := r.precondition(write.Operation); refused != (Answer{}) {
		return r, refused
	}
	next := r.raised(write.WriteToken, content)
	created := next.change(write.WriteToken, write.Operation)
	next.lastCreated = created
	return next, Answer{Code: CodeAdmitted, Version: next.newestVersion, Created: created}
}

// replays reports whether a write repeats the last accepted one: the same explicit sequence, the same token, the same
// content.
func (r Resource) replays(token store.WriteToken, content string) bool {
	return token.Token != 0 && token.Sequence != nil &&
		token.Token == r.LastToken && *token.Sequence == r.LastSequence && content == r.lastContent
}

// judge is steps 1 to 6 of the rule. It returns nothing for a token that is admitted.
func (r Resource) judge(token store.WriteToken, newest force, policy store.Policy) Answer {
	builtin := policy.Authority != store.AuthorityExternal
	var verdict store.Verdict
	switch {
	case token.Token == 0:
		verdict = store.VerdictTokenRequired // step 1
	case builtin && token.Token > newest.token:
		verdict = store.VerdictTokenUnknown // step 2
	case builtin && (token.Token != newest.token || !newest.open):
		verdict = store.VerdictTokenStale // step 3
	case !r.follows(token, policy):
		verdict = store.VerdictTokenStale // step 4
	case builtin && !newest.leaseIDMatches(token, policy):
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
		answer.Reason = r.staleReason(token, newest, builtin)
	}
	return answer
}

// follows is step 4: the write comes after the last accepted one.
func (r Resource) follows(token store.WriteToken, policy store.Policy) bool {
	if policy.Rule == store.RuleSameToken && token.Sequence == nil {
		return token.Token >= r.LastToken
	}
	return token.Token > r.LastToken || token.Token == r.LastToken && sequenceOf(token) > r.LastSequence
}

// staleReason is the reason of token_stale: a newer grant or write, a shared lease, a lease that was ended, or a number
// that was used before. Under an external authority, grants made here are not newer.
func (r Resource) staleReason(token store.WriteToken, newest force, builtin bool) string {
	switch {
	case token.Token < r.LastToken || builtin && token.Token < newest.token:
		return "superseded"
	case builtin && !newest.open && newest.Mode == store.Shared:
		return "shared"
	case builtin && !newest.open:
		return "released"
	}
	return "reused"
}

func (f force) leaseIDMatches(token store.WriteToken, policy store.Policy) bool {
	if token.LeaseID == nil {
		return !policy.RequireLeaseID
	}
	return *token.LeaseID == f.ID
}

// precondition is step 7, and that what is deleted must be there.
func (r Resource) precondition(op store.Operation) Answer {
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
	case op.Kind == store.Delete && !exists:
		return Answer{Code: CodeNotFound}
	}
	return Answer{}
}

// raised is the state after a write was accepted, before its records are changed. The fence never falls, also
// where an unnumbered write may follow a numbered one.
func (r Resource) raised(token store.WriteToken, content string) Resource {
	if token.Token == r.LastToken {
		r.LastSequence = max(r.LastSequence, sequenceOf(token))
	} else {
		r.LastSequence = sequenceOf(token)
	}
	r.LastToken = token.Token
	r.newestVersion++
	r.lastContent, r.lastCreated = "", false
	if token.Sequence != nil {
		r.lastContent = content
	}
	r.records = cloned(r.records)
	return r
}

// change applies an operation to records that raised has made this state's own. It reports whether it made a record.
func (r Resource) change(token store.WriteToken, op store.Operation) (created bool) {
	if op.Kind == store.Delete {
		delete(r.records, op.Key)
		return false
	}
	_, exists := r.records[op.Key]
	r.records[op.Key] = Record{
		Version: r.newestVersion, Token: token.Token, Sequence: sequenceOf(token), Numbered: token.Sequence != nil,
		ContentType: op.ContentType, Value: string(op.Value),
	}
	return !exists
}

// Record is the answer to Record.
func (r Resource) Record(key store.Name) Answer {
	record, exists := r.records[key]
	if !exists {
		return Answer{Code: CodeNotFound}
	}
	return Answer{Code: CodeRecord, Version: record.Version, Record: record}
}

// Keys returns the keys of all records, in order.
func (r Resource) Keys() []store.Name { return slices.Sorted(maps.Keys(r.records)) }

func sequenceOf(token store.WriteToken) int64 {
	if token.Sequence == nil {
		return 0
	}
	return *token.Sequence
}

// contentOf is the content of a write, without its token.
func contentOf(operations []store.ResourceOperation) string {
	content := ""
	for _, op := range operations {
		expect := "no matter"
		if op.Expect != nil {
			expect = fmt.Sprint(*op.Expect)
		}
		content += fmt.Sprintf("%s %q %q %q %s %q\n", op.Kind, op.Resource, op.Key, op.ContentType, expect, op.Value)
	}
	return content
}
