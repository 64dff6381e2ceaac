package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// codeError is a sentinel: an [*Error] with this code matches it by errors.Is.
type codeError api.Code

func (e codeError) Error() string { return "fencegate: " + string(e) }

// Is matches ErrNotHolder for the codes that it is the parent of.
func (e codeError) Is(target error) bool {
	switch api.Code(e) {
	case api.CodeLeaseLost, api.CodeTokenStale, api.CodeTokenUnknown, api.CodeLeaseMismatch, api.CodeLeaseExpired:
		return target == ErrNotHolder
	}
	return false
}

// ErrNotHolder says that the caller is not the holder: stop. It is the parent of [ErrLeaseLost] and [ErrTokenStale],
// whichever comes first after a loss, and of [ErrTokenUnknown], [ErrLeaseMismatch] and [ErrLeaseExpired]; also of those
// that the packages pgxguard and sqlguard return. [LossOf] returns what is known about the loss.
var ErrNotHolder = errors.New("fencegate: this process is not the holder")

// A sentinel for each code of the API.
var (
	// ErrInvalidRequest says that the request is malformed; the problem names the field and the limit.
	ErrInvalidRequest error = codeError(api.CodeInvalidRequest)
	// ErrInvalidName says that a lock, resource or key has no valid name.
	ErrInvalidName error = codeError(api.CodeInvalidName)
	// ErrInvalidToken says that the fencing token is not a number in its range.
	ErrInvalidToken error = codeError(api.CodeInvalidToken)
	// ErrUnauthenticated says that there is no credential, or a bad one.
	ErrUnauthenticated error = codeError(api.CodeUnauthenticated)
	// ErrForbidden says that the caller may not do this on this name.
	ErrForbidden error = codeError(api.CodeForbidden)
	// ErrUnknownHost says that the gateway does not answer for the host in its URL: see --allowed-hosts of the gateway.
	ErrUnknownHost error = codeError(api.CodeUnknownHost)
	// ErrNotFound says that there is no such lock, record or policy.
	ErrNotFound error = codeError(api.CodeNotFound)
	// ErrLockHeld says that another lease holds the lock, or that waiters are ahead in its queue. Problem.Holder is the
	// holder, nil if there is none.
	ErrLockHeld error = codeError(api.CodeLockHeld)
	// ErrDeadlock says that the wait would close a cycle of owners that wait for each other: Problem.Cycle, which
	// begins with the caller.
	ErrDeadlock error = codeError(api.CodeDeadlock)
	// ErrLeaseLost says that the lease is not the lock's current one; Problem.Reason is the reason.
	ErrLeaseLost error = codeError(api.CodeLeaseLost)
	// ErrNotExternal says that fencegate issues the tokens of the name itself, so that its fence can't be set.
	ErrNotExternal error = codeError(api.CodeNotExternal)
	// ErrUnsupported says that the provider of the name's leases, Redis, can't keep what was asked for.
	ErrUnsupported error = codeError(api.CodeUnsupported)
	// ErrTokenRequired says that the write had no token.
	ErrTokenRequired error = codeError(api.CodeTokenRequired)
	// ErrTokenUnknown says that the token was never granted.
	ErrTokenUnknown error = codeError(api.CodeTokenUnknown)
	// ErrTokenStale says that the token may not write any more, or was used before; see Problem.Reason.
	ErrTokenStale error = codeError(api.CodeTokenStale)
	// ErrTokenReused says that the last accepted write had this token and sequence. If it was the same transaction, that
	// is done; another one needs a greater sequence. Only SQL returns it. By HTTP, the same write is a replay.
	ErrTokenReused error = codeError(api.CodeTokenReused)
	// ErrLeaseMismatch says that the lease_id is not that of the token's lease, or is missing where the policy demands it.
	ErrLeaseMismatch error = codeError(api.CodeLeaseMismatch)
	// ErrLeaseExpired says that the policy demands a live lease and this one has expired.
	ErrLeaseExpired error = codeError(api.CodeLeaseExpired)
	// ErrVersionMismatch says that a precondition on a record does not hold; Problem.Version is the current one.
	ErrVersionMismatch error = codeError(api.CodeVersionMismatch)
	// ErrTooLarge says that the request is over a stated limit.
	ErrTooLarge error = codeError(api.CodeTooLarge)
	// ErrConstraintViolation says that a constraint of the user's own table rejected the row.
	ErrConstraintViolation error = codeError(api.CodeConstraintViolation)
	// ErrRowsMismatch says that the number of rows that match an operation on a table is not its ExpectRows.
	ErrRowsMismatch error = codeError(api.CodeRowsMismatch)
	// ErrRateLimited says that the caller sends too much.
	ErrRateLimited error = codeError(api.CodeRateLimited)
	// ErrUnavailable says that the gateway or its database was not reached, or did not answer in time. Problem.Outcome
	// says whether a write may have been applied. By HTTP, Problem.Retryable is false if no retry can succeed, as where
	// the gateway's certificate is of an unknown authority. Then no method retries.
	ErrUnavailable error = codeError(api.CodeUnavailable)
	// ErrInternal says that the gateway has a defect; its log has the details.
	ErrInternal error = codeError(api.CodeInternal)
)

// ErrForeignAnswer says that the answer is not fencegate's: a proxy's page, another service, an answer that was cut
// or is too large. A write may have been applied. The error is an [*AnswerError]. The status 502, 503 or 504 without
// a problem document is a proxy's word that no gateway has answered: such an error matches [ErrUnavailable], too.
var ErrForeignAnswer = errors.New("the answer is not fencegate's")

// ErrOutcomeUnknown says that a change may have been applied, and that the client can't find out: an answer was lost,
// and a retry did not settle it, or was not possible. An error matches it beside the sentinel of the last refusal.
var ErrOutcomeUnknown = errors.New("it is unknown whether it was applied")

// Error is the error of a call that was refused or that got no answer. It matches the sentinel of its code by
// errors.Is, and errors.As returns its [*api.Problem]. What to do:
//
//   - ErrLockHeld: try again after RetryAfter.
//   - ErrDeadlock: release your leases, and begin again.
//   - ErrNotHolder, the parent of five codes: the caller is not the holder. Stop.
//   - ErrVersionMismatch: read the record again.
//   - ErrUnavailable: try again.
//   - ErrLockHeld with context.DeadlineExceeded or context.Canceled: ctx ended the wait for a lock. The Holder of the
//     problem is the last one that a gateway reported.
//   - context.Canceled alone: the caller canceled the call. It does not match ErrUnavailable: don't retry.
//   - ErrLeaseLost with context.Canceled, from any call: its ctx is that of a lost lease. It does not match
//     ErrUnavailable.
//   - [ErrOutcomeUnknown] and [ErrForeignAnswer], also beside another: a change may have been applied.
type Error struct {
	// Op names the call, e.g. "acquire job-42".
	Op string
	// Problem is never nil. If no answer came, or the client did not send the request, it is the client's own.
	Problem *api.Problem
	// Cause is the error of the network or the context, if no answer came or ctx ended a wait; the driver's error of a
	// rejection by SQL; nil otherwise.
	Cause error
	// Earlier is an earlier attempt of the same call whose answer was lost; nil if there was none.
	Earlier error
	// RetryAfter is the pause that the gateway asks for before the next try; 0: none.
	RetryAfter time.Duration

	loss *loss // nil: the error is not the loss of a lease
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Problem.Error() + e.loss.text()
	if e.Cause != nil && e.Problem.Code == api.CodeLockHeld {
		text += " (" + e.Cause.Error() + ")"
	}
	if e.Earlier != nil && errors.Is(e, ErrOutcomeUnknown) {
		if earlier := strings.TrimPrefix(e.Earlier.Error(), e.Op+": "); e.Op+": "+earlier != text {
			text += " (an earlier attempt may have been applied: " + earlier + ")"
		}
	}
	return text
}

// Is matches the sentinel of the code, its parent ErrNotHolder, and ErrOutcomeUnknown.
func (e *Error) Is(target error) bool {
	if target == ErrOutcomeUnknown {
		return e.Problem.Outcome == api.OutcomeUnknown || (e.Earlier != nil && !e.settlesEarlier())
	}
	code := codeError(e.Problem.Code)
	return target == code || code.Is(target)
}

// settlesEarlier says that the refusal proves that no earlier attempt of the same call was applied. The gateway looks
// for the same write or the same request_id first: an applied attempt would have been answered as a replay. Two kinds
// of refusal prove nothing: those that come before that look, and token_stale where the fence has seen a newer write,
// which hides an earlier one.
func (e *Error) settlesEarlier() bool {
	if endedByCaller(e) {
		return false // the refusal is the client's own: no gateway has checked
	}
	p := e.Problem
	switch p.Code {
	case api.CodeUnavailable, api.CodeInternal, api.CodeRateLimited, api.CodeUnauthenticated, api.CodeForbidden,
		api.CodeUnknownHost:
		return false
	case api.CodeTokenStale:
		if p.Token == nil || p.LastToken == nil {
			return false
		}
		if *p.Token != *p.LastToken {
			return *p.Token > *p.LastToken
		}
		return p.Sequence != nil && p.LastSequence != nil && *p.Sequence > *p.LastSequence
	default:
		return true
	}
}

// remember keeps with an error that an earlier attempt may have been applied.
func remember(err, earlier error) error {
	var refusal *Error
	if earlier == nil || !errors.As(err, &refusal) || refusal.Earlier != nil {
		return err
	}
	withDoubt := *refusal
	withDoubt.Earlier = earlier
	return &withDoubt
}

// Unwrap returns the problem and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Problem}
	}
	return []error{e.Problem, e.Cause}
}

// AnswerError is the error of an answer that is not fencegate's. It matches [ErrForeignAnswer].
type AnswerError struct {
	Op string
	// URL is the configured one of the gateway, without its password.
	URL         string
	Status      int
	ContentType string
	// Fault says what is wrong with the answer.
	Fault string
	// Outcome is unknown for a call that changes something, not_applied for a read.
	Outcome api.Outcome
}

func (e *AnswerError) Error() string {
	return e.Op + ": " + e.said()
}

func (e *AnswerError) said() string {
	next := "Is it the gateway, or a proxy before it?"
	if e.Status == http.StatusBadRequest {
		next = "If it speaks TLS there, begin the URL with https://."
	}
	return fmt.Sprintf("%s does not answer as a fencegate gateway (%s): %s. %s",
		e.URL, strings.TrimSpace(strconv.Itoa(e.Status)+" "+e.ContentType), e.Fault, next)
}

// Unwrap returns ErrForeignAnswer.
func (e *AnswerError) Unwrap() error { return ErrForeignAnswer }

// Is matches ErrOutcomeUnknown.
func (e *AnswerError) Is(target error) bool {
	return target == ErrOutcomeUnknown && e.Outcome == api.OutcomeUnknown
}

// refused makes the error of a request that the client does not send, because it would not arrive as it is.
func refused(op string, code api.Code, detail string) *Error {
	return &Error{Op: op, Problem: &api.Problem{
		Type: "about:blank", Title: "Not sent", Status: http.StatusBadRequest, Code: code, Detail: detail,
	}}
}

// unanswered makes an ErrUnavailable without a gateway's answer.
func unanswered(op, title string, outcome api.Outcome, detail string, cause error) *Error {
	return &Error{Op: op, Cause: cause, Problem: &api.Problem{
		Type: "about:blank", Title: title, Status: http.StatusServiceUnavailable, Code: api.CodeUnavailable,
		Retryable: true, Outcome: outcome, Detail: detail,
	}}
}

// notSent makes an ErrUnavailable for a request that was not sent.
func notSent(op, why string, cause error) *Error {
	return unanswered(op, "Not sent", api.OutcomeNotApplied, "it was not sent: "+why, cause)
}

// codeCanceled is the code of the client's own problem where the caller canceled the call. No gateway sends it.
const codeCanceled api.Code = "canceled"

// errCanceled matches an error with that code.
const errCanceled = codeError(codeCanceled)

// endedWith returns the error of a call that ended with ctx. It returns err if ctx has not ended, and if a gateway has
// refused the call for good.
//
// If ctx ended because a lease was lost, the error is ErrLeaseLost: no other try can succeed. If a gateway has
// answered that the lock is held, the error is ErrLockHeld with the cause ctx.Err(); held is the last such answer, or
// nil. If the caller canceled ctx, the error matches context.Canceled, and not ErrUnavailable: it asks for no retry.
// All of them but ErrLockHeld match ErrOutcomeUnknown if err does.
func endedWith(ctx context.Context, err, held error) error {
	if ctx.Err() == nil || err == nil || !notServed(err) && !errors.Is(err, errCanceled) && !errors.Is(err, ErrLockHeld) {
		return err
	}
	if cause := context.Cause(ctx); isLost(cause) {
		return lostDuring(err, cause)
	}
	var refusal *Error
	if errors.As(held, &refusal) {
		ended := *refusal
		ended.Cause = ctx.Err()
		return &ended
	}
	if notServed(err) && errors.Is(ctx.Err(), context.Canceled) {
		return canceledDuring(err, ctx.Err())
	}
	return err
}

// endedByCaller says that the error is one of lostDuring or canceledDuring: no gateway has answered, and a lease that
// was lost may be another one than the call's.
func endedByCaller(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && isLost(failed.Cause) || errors.Is(err, errCanceled)
}

// lostDuring makes ErrLeaseLost of the failure of a call whose ctx ended with a lease.
func lostDuring(err, lost error) error {
	problem := &api.Problem{Title: "Lease lost", Status: http.StatusConflict, Code: api.CodeLeaseLost}
	if inner := ProblemOf(lost); inner != nil {
		problem.Reason = inner.Reason
	}
	return endedDuring(err, lost, problem)
}

// canceledDuring makes an error that matches context.Canceled of the failure of a call that the caller canceled.
func canceledDuring(err, canceled error) error {
	return endedDuring(err, canceled, &api.Problem{Title: "Canceled", Status: statusCanceled, Code: codeCanceled})
}

// statusCanceled is what proxies log for a request that its client has canceled.
const statusCanceled = 499

func endedDuring(err, cause error, problem *api.Problem) error {
	op, earlier := "", error(nil)
	var failed *Error
	var foreign *AnswerError
	switch {
	case errors.As(err, &failed):
		op, earlier = failed.Op, failed.Earlier
	case errors.As(err, &foreign):
		op = foreign.Op
	}
	problem.Type, problem.Outcome = "about:blank", api.OutcomeNotApplied
	problem.Detail = cause.Error() + ". It was not applied."
	if errors.Is(err, ErrOutcomeUnknown) {
		problem.Outcome = api.OutcomeUnknown
		problem.Detail = cause.Error() + ". It may have been applied: the fence decides."
	}
	return &Error{Op: op, Problem: problem, Cause: cause, Earlier: earlier}
}

// ErrLeaseReleased is the cause of a context that ended because this process released its lease: by Release, or
// the end of a session.
var ErrLeaseReleased = errors.New("the lease was released")

var errTTL = errors.New("its TTL may have run out before a renewal was answered")

var errMaxHold = errors.New("it has reached the longest time that its policy lets one be held (max_hold_ms)")

// LostError says that this process must not rely on a lease any more. It matches [ErrLeaseLost], its parent
// [ErrNotHolder] and, since it is the error of a context, context.Canceled.
type LostError struct {
	// What names what was lost, e.g. "the lease on job-42 with token 34".
	What string
	// Why is the refusal of a gateway, or says that the TTL has run out.
	Why error

	loss *loss
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("%s is lost: %v", e.What, e.Why)
	var why *Error
	if errors.As(e.Why, &why) && why.loss == e.loss {
		return text
	}
	return text + e.loss.text()
}

// Is matches ErrLeaseLost, ErrNotHolder and context.Canceled.
func (e *LostError) Is(target error) bool {
	return target == ErrLeaseLost || target == ErrNotHolder || target == context.Canceled
}

// Unwrap returns Why.
func (e *LostError) Unwrap() error { return e.Why }

// withWork returns the loss and the error of the work that it ended. What both say is said once.
func (e *LostError) withWork(err error) error {
	var rejected *Error
	switch {
	case err == nil || errors.Is(e, err):
		return e
	case errors.Is(err, e):
		return err
	case errors.As(err, &rejected) && rejected.loss == e.loss:
		return &LostError{What: e.What, Why: err, loss: e.loss}
	}
	return errors.Join(e, err)
}

func isLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}

// ProblemOf returns the problem of a refusal, nil if err is none.
func ProblemOf(err error) *api.Problem {
	var problem *api.Problem
	_ = errors.As(err, &problem)
	return problem
}
