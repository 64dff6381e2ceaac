package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

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

// reasonMaxHold is the reason of lease_lost and token_stale when a lease has reached its policy's max_hold_ms.
const reasonMaxHold = "max_hold"

// errMaxHold is what a gateway answers to a renewal from then on.
var errMaxHold = &api.Problem{
	Type: "about:blank", Title: "Not renewed", Status: http.StatusConflict, Code: api.CodeLeaseLost, Reason: reasonMaxHold,
	Detail: "It has reached the longest time that its policy lets one be held (max_hold_ms). " +
		"Stop the work that it protected; acquire the lock again to continue.",
}

// LostError says that this process must not rely on a lease any more. It matches [ErrLeaseLost] and, since it is the
// error of a context, context.Canceled.
type LostError struct {
	// What names what was lost, e.g. "the lease on job-42 with token 34".
	What string
	// Why is the refusal of a gateway, or says that the TTL has run out.
	Why error
}

func (e *LostError) Error() string { return fmt.Sprintf("%s is lost: %v", e.What, e.Why) }

// Is matches ErrLeaseLost and context.Canceled.
func (e *LostError) Is(target error) bool {
	return target == ErrLeaseLost || target == context.Canceled
}

// Unwrap returns Why.
func (e *LostError) Unwrap() error { return e.Why }

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
