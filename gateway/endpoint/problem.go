package endpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/lockclient/api"
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

// problemKinds is the only place that maps errors to answers. The first that errors.Is finds counts.
var problemKinds = []problemKind{
	{store.ErrInvalidName, 400, api.CodeInvalidName, false, ""},
	{store.ErrInvalid, 400, api.CodeInvalidRequest, false, ""},
	{store.ErrExternalAuthority, 400, api.CodeInvalidRequest, false,
		"Take a token from that lock service, or change the policy of the name."},
	{store.ErrBuiltinAuthority, 409, api.CodeNotExternal, false,
		"Its fence can't be set; break a lease to fence off its holder. If another lock service issues them, set a policy " +
			"with authority external first."},
	{store.ErrUnsupported, 400, api.CodeUnsupported, false,
		"Ask for what the provider can keep, or change the policy's leases to postgres."},
	{store.ErrNotFound, 404, api.CodeNotFound, false, ""},
	{store.ErrLeaseHeld, 409, api.CodeLockHeld, true, ""}, // see addHolder
	{store.ErrDeadlock, 409, api.CodeDeadlock, false, ""}, // see deadlockDetail
	{store.ErrLeaseLost, 409, api.CodeLeaseLost, false, loseLease},
	{store.ErrTokenRequired, 428, api.CodeTokenRequired, false,
		"Acquire the lock of the same name and send its token in the header Fencing-Token, or in the transaction's " +
			"fences."},
	{store.ErrUnknownToken, 412, api.CodeTokenUnknown, false,
		"Send a token that an acquire of this name has returned."},
	{store.ErrStaleToken, 412, api.CodeTokenStale, false, ""}, // see staleDetail
	{store.ErrLeaseMismatch, 412, api.CodeLeaseMismatch, false,
		"Send the lease_id that the acquire of this token returned, in the header Lease-Id or in the transaction's " +
			"fences."},
	{store.ErrLeaseExpired, 412, api.CodeLeaseExpired, false,
		"Acquire the lock anew, and renew the lease before it expires."},
	{store.ErrVersionMismatch, 412, api.CodeVersionMismatch, false,
		"Read the record again and decide anew; version is the current one, 0 where there is none."},
	{store.ErrConstraint, 422, api.CodeConstraintViolation, false, "Nothing was changed: correct the row."},
	{store.ErrForbidden, 403, api.CodeForbidden, false,
		"The role that the table was opened for lacks a right, or a policy forbids the row."},
	{store.ErrRowCount, 412, api.CodeRowsMismatch, false, "Nothing was changed: read the rows and decide anew."},
	{store.ErrLimit, 429, api.CodeRateLimited, true, "Nothing was changed."},
	{store.ErrTooLarge, 413, api.CodeTooLarge, false, ""},
	// Neither a defect nor the client's fault: the database can't grant. No other unavailable must not be retried.
	{store.ErrTokensExhausted, 503, api.CodeUnavailable, false,
		"Nothing was changed, and no retry can succeed: an administrator must act."},
	{store.ErrProviderUnavailable, 503, api.CodeUnavailable, true, ""},
	{store.ErrUnavailable, 503, api.CodeUnavailable, true, ""},
	{store.ErrElsewhere, 503, api.CodeUnavailable, true, "Nothing was changed. Gateways of a cluster need the flag --cluster."},
}

const loseLease = "Stop the work that the lease protected; acquire the lock anew to go on."

// Problem returns an answer that comes from no error of the store.
func Problem(status int, code api.Code, detail string) *api.Problem {
	return &api.Problem{
		Type: typeBase + string(code), Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
	}
}

// Invalid returns the answer to malformed input, which names the field and the limit.
func Invalid(format string, args ...any) *api.Problem {
	return Problem(http.StatusBadRequest, api.CodeInvalidRequest, fmt.Sprintf(format, args...))
}

// InvalidToken returns the answer to a malformed token or sequence.
func InvalidToken(detail string) *api.Problem {
	return Problem(http.StatusBadRequest, api.CodeInvalidToken, detail)
}

// Busy returns the answer to a request that changed nothing, and should be sent to another gateway, or later.
func Busy(detail string) *api.Problem {
	answer := Problem(http.StatusServiceUnavailable, api.CodeUnavailable, detail)
	answer.Retryable, answer.Outcome = true, api.OutcomeNotApplied
	return answer
}

// ProblemOf turns any error into an answer. An error that is not in the table is a defect, which only the log explains.
func ProblemOf(err error) *api.Problem {
	if ready, ok := errors.AsType[*api.Problem](err); ok {
		return ready
	}
	if rejected, ok := errors.AsType[*store.RejectedError](err); ok {
		return RejectionProblem(rejected)
	}
	for _, kind := range problemKinds {
		if errors.Is(err, kind.err) {
			answer := Problem(kind.status, kind.code, kind.detail(err))
			answer.Title = kind.err.Error()
			answer.Retryable = kind.retryable
			addData(answer, err)
			return answer
		}
	}
	return Problem(http.StatusInternalServerError, api.CodeInternal, "The gateway failed; its log says why.")
}

// detail is the error's text without its title, and what to do next.
func (k problemKind) detail(err error) string {
	text := strings.Replace(err.Error(), k.err.Error()+": ", "", 1)
	if k.status != http.StatusBadRequest || strings.HasPrefix(text, "the name ") { // others begin with the name of a field
		text = capitalized(text)
	}
	return strings.TrimSpace(text + ". " + k.next)
}

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// addData fills in the data of the typed errors.
func addData(answer *api.Problem, err error) {
	var (
		held        *store.HeldError
		deadlock    *store.DeadlockError
		lost        *store.LostError
		unavailable *store.UnavailableError
		refused     *store.TableError
	)
	switch {
	case errors.As(err, &refused):
		addRefusedRow(answer, refused)
	case errors.As(err, &held):
		addHolder(answer, held)
	case errors.As(err, &deadlock):
		answer.Detail = deadlockDetail(deadlock)
		answer.Cycle = Convert(deadlock.Cycle, func(wait store.Wait) api.Wait {
			return api.Wait{OwnerID: wait.OwnerID, Principal: wait.Principal, Lock: string(wait.Lock)}
		})
	case errors.As(err, &lost):
		answer.Reason = lost.Reason
		if lost.Lock == "" {
			answer.Detail = "The session has ended: " + lost.Reason + ". Stop the work that its leases protected; " +
				"create another session to go on."
		}
	case errors.Is(err, store.ErrLimit):
		answer.Outcome, answer.RecommendedRetryMS = api.OutcomeNotApplied, new(Jittered(limitRetry).Milliseconds())
	case errors.Is(err, store.ErrTokensExhausted):
		answer.Outcome = api.OutcomeNotApplied
	case errors.As(err, &unavailable):
		addOutcome(answer, unavailable)
	}
}

// addOutcome adds the outcome of a request that the database, or the provider of the leases, did not answer.
func addOutcome(answer *api.Problem, unavailable *store.UnavailableError) {
	answer.Outcome = api.Outcome(unavailable.Outcome)
	wentBack, isOlder := errors.AsType[*store.WentBackError](unavailable)
	silent := "The database could not be reached, or did not answer."
	provider, ofProvider := errors.AsType[*store.ProviderError](unavailable)
	if ofProvider {
		silent = fmt.Sprintf("The leases on this name are kept in Redis (%s), which could not be reached, did not answer, "+
			"or refused.", provider.Provider)
	}
	switch {
	case isOlder && unavailable.Outcome == store.OutcomeNotApplied:
		answer.Detail = capitalized(wentBack.Error()) + ". It is not used, and nothing was changed. An administrator must " +
			"act: see docs/runbooks/FencegateDatabaseWentBack.md."
	case errors.Is(unavailable, store.ErrOverloaded):
		answer.Title = store.ErrOverloaded.Error()
		answer.Detail = unavailable.Err.Error() + ". Nothing was changed: try again a little later."
	case errors.Is(unavailable, store.ErrLocked):
		answer.Detail = "Another session of the database holds a lock that this needs, longer than a call waits. " +
			"Nothing was changed: try again."
	case errors.Is(unavailable, store.ErrSchemaMissing):
		answer.Detail = "The database has no schema of fencegate, or an older one. Nothing was changed: run " +
			"`fencegate migrate`."
	case errors.Is(unavailable, store.ErrNotReplicated) && unavailable.Outcome == store.OutcomeUnknown:
		answer.Detail = "The change was made, and no standby of the database has confirmed it: a failover may take it " +
			"back. Send the same again, which is answered when a standby has confirmed it: a write with the same token " +
			"and sequence, an acquire with the same request_id."
	case unavailable.Outcome == store.OutcomeUnknown:
		answer.Detail = silent + " The change may have been made: send the same again, a write with the same token and " +
			"sequence, an acquire with the same request_id."
	default:
		answer.Detail = silent + " Nothing was changed: try again."
	}
}

func addRefusedRow(answer *api.Problem, refused *store.TableError) {
	answer.Op, answer.SQLState = refused.Op, refused.SQLState
	answer.Table, answer.Column, answer.Constraint = refused.Table, refused.Column, refused.Constraint
	if errors.Is(refused, store.ErrRowCount) {
		answer.Rows = &refused.Rows
	}
}

func addHolder(answer *api.Problem, held *store.HeldError) {
	if held.OwnerID != "" {
		answer.Holder = &api.Holder{
			OwnerID: held.OwnerID, Principal: held.Principal, ExpiresAt: api.Time{Time: held.ExpiresAt},
		}
	}
	answer.QueueLength = &held.QueueLength
	pause := Jittered(retryAfter(held.Remaining, held.QueueLength)).Truncate(time.Millisecond)
	answer.RecommendedRetryMS = new(pause.Milliseconds())
	answer.Detail += " Try again in " + pause.String() + "."
}

// deadlockDetail says what the caller, which is the first in the cycle, should do.
func deadlockDetail(deadlock *store.DeadlockError) string {
	return fmt.Sprintf("Waiting here would close a cycle of %d owners that wait for each other; cycle names them. "+
		"Nobody waits on account of this request. Release the locks that you hold and acquire them anew, all owners "+
		"in the same order.", len(deadlock.Cycle))
}

// retryAfter estimates when a try is worth while, 50 ms to 30 s: a turn for the holder and each waiter in the queue. A
// turn ends with the lease's expiry, or after a second, since holders tend to release earlier.
func retryAfter(remaining time.Duration, queueLength int) time.Duration {
	const least, most = 50 * time.Millisecond, 30 * time.Second
	turn := min(max(remaining, least), time.Second)
	turns := 1 + min(queueLength, int(most/least))
	return min(time.Duration(turns)*turn, most)
}

// Jittered adds up to a quarter, so that clients do not all return at once.
func Jittered(wait time.Duration) time.Duration {
	return wait + rand.N(wait/4+1) //nolint:gosec // jitter, not a secret
}

// CodeOf returns the code of the answer to an error: "" for nil, metrics.ClientGone if the client has left.
func CodeOf(err error) api.Code {
	if err == nil {
		return ""
	}
	if rejected, ok := errors.AsType[*store.RejectedError](err); ok {
		return api.Code(rejected.Verdict)
	}
	if errors.Is(err, ErrClientGone) {
		return metrics.ClientGone
	}
	return ProblemOf(err).Code
}

// answerProblem answers an error, and logs failures that are not the client's.
func (s *Server) answerProblem(w *Answer, r *http.Request, err error) {
	if errors.Is(err, ErrClientGone) {
		w.Code = metrics.ClientGone
		w.abandoned = true
		return
	}
	if isRead(r) {
		err = ofRead(err)
	}
	answer := *ProblemOf(err)
	answer.Instance = redactPath(r.URL.EscapedPath())
	if level, message := Failure(err, answer.Code); message != "" {
		s.Logger.Log(r.Context(), level, message,
			"method", r.Method, "path", redactPath(r.URL.Path), "error", err)
	}
	if errors.Is(err, store.ErrLimit) {
		s.Metrics.RateLimited(metrics.LimitCreated)
	}
	switch {
	case answer.Code == api.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="fencegate"`)
	case answer.RecommendedRetryMS != nil:
		w.Header().Set("Retry-After", strconv.FormatInt((*answer.RecommendedRetryMS+999)/1000, 10))
	case answer.Code == api.CodeUnavailable && !answer.Retryable: // for a client that retries every 503
		w.Header().Set("Retry-After", "3600")
	case answer.Code == api.CodeUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	w.Code, w.reason = answer.Code, answer.Reason
	s.NoteForbidden(w, r, "", answer.Code)
	AnswerDocument(w, problemContentType, answer.Status, &answer)
}

// ofRead makes the outcome of a read certain: it has changed nothing.
func ofRead(err error) error {
	if unavailable, ok := errors.AsType[*store.UnavailableError](err); ok {
		return store.NotApplied(unavailable.Err)
	}
	return err
}

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

// RejectionProblem is ProblemOf for a rejection.
func RejectionProblem(rejected *store.RejectedError) *api.Problem {
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
