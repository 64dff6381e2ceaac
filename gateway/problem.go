package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// typeBase begins the type of every problem; the code follows.
const typeBase = "urn:fencegate:problem:"

// problemKind is a row of the table from errors to answers.
type problemKind struct {
	err       error
	status    int
	code      api.Code
	retryable bool
	next      string // what to do next; "" where the error says it
}

// problemKinds is the one place that knows which error is answered how. The first that errors.Is finds counts.
var problemKinds = []problemKind{
	{store.ErrInvalidName, 400, api.CodeInvalidName, false, ""},
	{store.ErrInvalid, 400, api.CodeInvalidRequest, false, ""},
	{store.ErrExternalAuthority, 400, api.CodeInvalidRequest, false, "Take a token from that lock service, or change the policy of the name."},
	{store.ErrNotFound, 404, api.CodeNotFound, false, ""},
	{store.ErrLeaseHeld, 409, api.CodeLockHeld, true, "Try again after recommended_retry_ms."},
	{store.ErrDeadlock, 409, api.CodeDeadlock, false, ""}, // see deadlockDetail
	{store.ErrLeaseLost, 409, api.CodeLeaseLost, false, "Stop the work that the lease protected; acquire the lock anew to go on."},
	{store.ErrTokenRequired, 428, api.CodeTokenRequired, false, "Acquire the lock of the same name and send its token in the header Fencing-Token, or in the transaction's fences."},
	{store.ErrUnknownToken, 412, api.CodeTokenUnknown, false, "Send a token that an acquire of this name has returned."},
	{store.ErrStaleToken, 412, api.CodeTokenStale, false, ""}, // see staleDetail
	{store.ErrLeaseMismatch, 412, api.CodeLeaseMismatch, false, "Send the lease_id that the acquire of this token returned, in the header Lease-Id or in the transaction's fences."},
	{store.ErrLeaseExpired, 412, api.CodeLeaseExpired, false, "Acquire the lock anew, and renew the lease before it expires."},
	{store.ErrVersionMismatch, 412, api.CodeVersionMismatch, false, "Read the record again and decide anew; version is the current one, 0 where there is none."},
	// Not a defect, and not the client's fault: the database can't grant. It is the only unavailable that is not to be repeated.
	{store.ErrTokensExhausted, 503, api.CodeUnavailable, false, "Nothing was changed, and no retry can succeed: an administrator must act."},
	{store.ErrUnavailable, 503, api.CodeUnavailable, true, ""},
}

// problem makes an answer that no error of the store stands behind.
func problem(status int, code api.Code, detail string) *api.Problem {
	return &api.Problem{
		Type: typeBase + string(code), Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	}
}

// invalid is an answer to malformed input, which names the field and the limit.
func invalid(format string, args ...any) *api.Problem {
	return problem(http.StatusBadRequest, api.CodeInvalidRequest, fmt.Sprintf(format, args...))
}

// busy is an answer to what another gateway, or this one a moment later, can do: nothing was changed.
func busy(detail string) *api.Problem {
	answer := problem(http.StatusServiceUnavailable, api.CodeUnavailable, detail)
	answer.Retryable, answer.Outcome = true, api.OutcomeNotApplied
	return answer
}

// problemOf turns any error into an answer. What is not in the table is a defect: clients learn no more than that.
func problemOf(err error) *api.Problem {
	switch err := err.(type) { //nolint:errorlint // as they come from the handlers themselves; what is wrapped follows
	case *api.Problem:
		return err
	case *store.RejectedError:
		return rejectionProblem(err)
	}
	var ready *api.Problem
	if errors.As(err, &ready) {
		return ready
	}
	for _, kind := range problemKinds {
		if errors.Is(err, kind.err) {
			answer := problem(kind.status, kind.code, kind.detail(err))
			answer.Title = kind.err.Error()
			answer.Retryable = kind.retryable
			addData(answer, err)
			return answer
		}
	}
	return problem(http.StatusInternalServerError, api.CodeInternal, "The gateway failed; its log says why.")
}

// detail is what the error says beyond its title, and what to do next.
func (k problemKind) detail(err error) string {
	what := strings.Replace(err.Error(), k.err.Error()+": ", "", 1)
	if k.status != http.StatusBadRequest { // there a field stands first, as it is written
		what = strings.ToUpper(what[:1]) + what[1:]
	}
	return strings.TrimSpace(what + ". " + k.next)
}

// addData fills in what the typed errors carry.
func addData(answer *api.Problem, err error) {
	var (
		rejected    *store.RejectedError
		held        *store.HeldError
		deadlock    *store.DeadlockError
		lost        *store.LostError
		unavailable *store.UnavailableError
	)
	switch {
	case errors.As(err, &rejected):
		addRejection(answer, rejected)
	case errors.As(err, &held):
		addHolder(answer, held)
	case errors.As(err, &deadlock):
		answer.Detail = deadlockDetail(deadlock)
		for _, wait := range deadlock.Cycle {
			answer.Cycle = append(answer.Cycle, api.Wait{OwnerID: wait.OwnerID, Lock: string(wait.Lock)})
		}
	case errors.As(err, &lost):
		answer.Reason = lost.Reason
		if lost.Reason == "max_hold" {
			answer.Detail = fmt.Sprintf("The lease on %s has reached the longest time that its policy lets one be held (max_hold_ms), and its fence is closed. "+
				"Stop the work that the lease protected; acquire the lock anew to go on.", lost.Lock)
		}
		if lost.Lock == "" {
			answer.Detail = "The session has ended: " + lost.Reason + ". Stop the work that its leases protected; create another session to go on."
		}
	case errors.Is(err, store.ErrTokensExhausted):
		answer.Outcome = api.OutcomeNotApplied
	case errors.As(err, &unavailable):
		answer.Outcome = api.Outcome(unavailable.Outcome)
		answer.Detail = "The database could not be asked, or did not answer. Nothing was changed: try again."
		if unavailable.Outcome == store.OutcomeUnknown {
			answer.Detail = "The database did not answer. The change may have been made: send the same again, a write with the same token and sequence, an acquire with the same request_id."
		}
		if errors.Is(err, store.ErrLocked) {
			answer.Detail = "Another session of the database holds a lock that this needs, longer than a call waits. Nothing was changed: try again."
		}
		if errors.Is(err, store.ErrOverloaded) {
			answer.Title = store.ErrOverloaded.Error()
			answer.Detail = unavailable.Err.Error() + ". Nothing was changed: try again a little later."
		}
	}
}

func addHolder(answer *api.Problem, held *store.HeldError) {
	if held.OwnerID != "" {
		answer.Holder = &api.Holder{OwnerID: held.OwnerID, ExpiresAt: api.Time{Time: held.ExpiresAt}}
	}
	answer.QueueLength = &held.QueueLength
	retry := jittered(retryAfter(held.Remaining, held.QueueLength)).Milliseconds()
	answer.RecommendedRetryMS = &retry
}

// deadlockDetail says what the caller, who is the first in the cycle, should do.
func deadlockDetail(deadlock *store.DeadlockError) string {
	return fmt.Sprintf("To wait here would close a cycle of %d owners who wait for each other; cycle names them. Nobody waits on account of this "+
		"request. Release what you hold and acquire it anew, all owners in the same order.", len(deadlock.Cycle))
}

// rejectionKinds are the rows of problemKinds for rejections.
var rejectionKinds = func() map[store.Verdict]problemKind {
	kinds := map[store.Verdict]problemKind{}
	for _, verdict := range []store.Verdict{
		store.VerdictTokenRequired, store.VerdictTokenUnknown, store.VerdictTokenStale, store.VerdictLeaseMismatch, store.VerdictLeaseExpired,
		store.VerdictVersionMismatch,
	} {
		for _, kind := range problemKinds {
			if errors.Is(&store.RejectedError{Verdict: verdict}, kind.err) {
				kinds[verdict] = kind
			}
		}
	}
	return kinds
}()

// rejectionProblem is problemOf a rejection.
func rejectionProblem(rejected *store.RejectedError) *api.Problem {
	kind := rejectionKinds[rejected.Verdict]
	answer := &api.Problem{
		Type: typeBase + string(kind.code), Title: kind.err.Error(), Status: kind.status, Code: kind.code, Retryable: kind.retryable,
	}
	if rejected.Verdict != store.VerdictTokenStale { // which addRejection details
		answer.Detail = kind.detail(rejected)
	}
	addRejection(answer, rejected)
	return answer
}

func addRejection(answer *api.Problem, rejected *store.RejectedError) {
	answer.Resource = string(rejected.Resource)
	answer.Reason = rejected.Reason
	if rejected.Token != 0 {
		answer.Token, answer.Sequence = &rejected.Token, rejected.Sequence
	}
	answer.Op = rejected.Op
	switch rejected.Verdict {
	case store.VerdictTokenStale:
		answer.Detail = staleDetail(rejected)
		fallthrough
	case store.VerdictTokenUnknown:
		answer.LastToken, answer.LastSequence = &rejected.LastToken, &rejected.LastSequence
		answer.GrantedToken = &rejected.GrantedToken
	case store.VerdictVersionMismatch:
		answer.Version = &rejected.Version
	}
}

// staleDetail says what shut the write out, and what its writer should do.
func staleDetail(rejected *store.RejectedError) string {
	presented := api.FencingToken{Token: rejected.Token, Sequence: rejected.Sequence}
	last := api.FencingToken{Token: rejected.LastToken}
	if rejected.LastSequence > 0 {
		last.Sequence = &rejected.LastSequence
	}
	switch rejected.Reason {
	case "superseded":
		newest := strconv.FormatInt(max(rejected.GrantedToken, rejected.LastToken), 10)
		if rejected.Remembered {
			newest += " or a newer one"
		}
		return "The write to " + string(rejected.Resource) + " has token " + presented.String() + ", but token " + newest +
			" is in force by now. Stop: another holder has taken over. Acquire the lock anew to go on."
	case "released":
		return fmt.Sprintf("The write to %s has token %s, whose lease was released or broken. Stop, or acquire the lock anew to go on.", rejected.Resource, presented)
	case "max_hold":
		return fmt.Sprintf("The write to %s has token %s, whose lease has reached the longest time that its policy lets one be held (max_hold_ms). "+
			"Stop, or acquire the lock anew to go on.", rejected.Resource, presented)
	}
	if rejected.Reason == "shared" {
		return fmt.Sprintf("The write to %s has token %s, which is that of a shared lease, and those can't write. Acquire the lock in mode exclusive to write.", rejected.Resource, presented)
	}
	return fmt.Sprintf("The write to %s has token %s, and %s was accepted before: each write of a lease needs a greater number. Number them: %d.1, %d.2, …",
		rejected.Resource, presented, last, rejected.Token, rejected.Token)
}

// retryAfter is a guess at when a try is worth while: at the lease's expiry, but holders tend to release before that, and then those in
// line have their turns. 50 ms to 30 s.
func retryAfter(remaining time.Duration, queueLength int) time.Duration {
	const least, most = 50 * time.Millisecond, 30 * time.Second
	turn := min(max(remaining, least), time.Second)
	turns := 1 + min(queueLength, int(most/least))
	return min(time.Duration(turns)*turn, most)
}

// jittered adds up to a quarter, which keeps many clients from coming at once.
func jittered(wait time.Duration) time.Duration {
	return wait + rand.N(wait/4+1) //nolint:gosec // jitter, not a secret
}

func (g *Gateway) answerProblem(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errClientGone) {
		noteCode(w, resultClientGone, "")
		abandon(w)
		return
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		err = ofRead(err)
	}
	answer := *problemOf(err)
	answer.Instance = discreet(r.URL.EscapedPath())
	if answer.Code == api.CodeInternal {
		g.config.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", discreet(r.URL.Path), "error", err)
	} else if errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrOverloaded) { // each of which is counted
		g.config.Logger.WarnContext(r.Context(), "database unavailable", "method", r.Method, "path", discreet(r.URL.Path), "error", err)
	}
	switch {
	case answer.RecommendedRetryMS != nil:
		w.Header().Set("Retry-After", strconv.FormatInt((*answer.RecommendedRetryMS+999)/1000, 10))
	case answer.Code == api.CodeUnavailable && !answer.Retryable: // for what retries each 503 by itself
		w.Header().Set("Retry-After", "3600")
	case answer.Code == api.CodeUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	noteCode(w, answer.Code, answer.Reason)
	answerEncoded(w, problemContentType, answer.Status, func(out []byte) []byte {
		out, encoded := appendProblem(out, &answer)
		if !encoded {
			text := bytes.NewBuffer(out)
			encodeJSON(text, &answer)
			out = text.Bytes()
		}
		return out
	})
}

// ofRead leaves no doubt about the outcome: whatever became of the statement, it changed nothing.
func ofRead(err error) error {
	var unavailable *store.UnavailableError
	if errors.As(err, &unavailable) {
		return &store.UnavailableError{Outcome: store.OutcomeNotApplied, Err: unavailable.Err}
	}
	return err
}

// answerJSON answers with a document.
func answerJSON(w http.ResponseWriter, status int, document any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encodeJSON(w, document)
	return nil
}

// encodeJSON writes a document; a client that is gone gets nothing, and there is nobody to tell.
func encodeJSON(w io.Writer, document any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(document)
}
