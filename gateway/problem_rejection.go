package gateway

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// rejectionKinds are the rows of problemKinds by their code. The code of a rejection is its verdict.
var rejectionKinds = func() map[store.Verdict]problemKind {
	kinds := map[store.Verdict]problemKind{}
	for _, kind := range problemKinds {
		verdict := store.Verdict(kind.code)
		if errors.Is(&store.RejectedError{Verdict: verdict}, kind.err) {
			kinds[verdict] = kind
		}
	}
	return kinds
}()

// rejectionProblem is problemOf for a rejection.
func rejectionProblem(rejected *store.RejectedError) *api.Problem {
	kind := rejectionKinds[rejected.Verdict]
	answer := &api.Problem{
		Type: typeBase + string(kind.code), Title: kind.err.Error(), Status: kind.status, Code: kind.code,
		Retryable: kind.retryable, Resource: string(rejected.Resource), Reason: rejected.Reason, Op: rejected.Op,
	}
	if rejected.Token != 0 {
		answer.Token, answer.Sequence = &rejected.Token, rejected.Sequence
	}
	switch rejected.Verdict {
	case store.VerdictTokenStale, store.VerdictTokenUnknown:
		answer.LastToken, answer.LastSequence = &rejected.LastToken, &rejected.LastSequence
		answer.GrantedToken = &rejected.GrantedToken
	case store.VerdictVersionMismatch:
		answer.Version = &rejected.Version
	}
	switch {
	case rejected.Verdict == store.VerdictTokenStale:
		answer.Detail = staleDetail(rejected)
	case rejected.Table != "":
		answer.Detail = "A row of " + rejected.Table + " belongs to " + string(rejected.Resource) + ", which is not the " +
			"resource of the operation. Name it there, with a token of its lock in the transaction's fences."
	default:
		answer.Detail = kind.detail(rejected)
	}
	answer.Table = rejected.Table
	return answer
}

// staleDetail says why a stale write was rejected, and what its writer should do.
func staleDetail(rejected *store.RejectedError) string {
	presented := api.FencingToken{Token: rejected.Token, Sequence: rejected.Sequence}
	if rejected.Reason == "superseded" { // in one concatenation: zombies make it the hottest of all details
		newest := strconv.FormatInt(max(rejected.GrantedToken, rejected.LastToken), 10)
		if rejected.Remembered {
			newest += " or a newer one"
		}
		return "The write to " + string(rejected.Resource) + " has token " + presented.String() + ", but token " +
			newest + " is in force by now. Stop: another holder has taken over. Acquire the lock anew to go on."
	}
	write := "The write to " + string(rejected.Resource) + " has token " + presented.String()
	switch rejected.Reason {
	case "released":
		return write + ", whose lease was released or broken. Stop, or acquire the lock anew to go on."
	case "max_hold":
		return write + ", whose lease has reached the longest time that its policy lets one be held (max_hold_ms). " +
			"Stop, or acquire the lock anew to go on."
	case "shared":
		return write + ", which is that of a shared lease, and those can't write. " +
			"Acquire the lock in mode exclusive to write."
	}
	last := api.FencingToken{Token: rejected.LastToken}
	if rejected.LastSequence > 0 {
		last.Sequence = &rejected.LastSequence
	}
	return fmt.Sprintf("%s, and %s was accepted before: each write of a lease needs a greater number. "+
		"Number them: %d.1, %d.2, …", write, last, rejected.Token, rejected.Token)
}
