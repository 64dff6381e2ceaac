package lockclient

import (
	"context"
	"errors"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// endedWith returns the error of a call that ended with ctx. It returns err while ctx lasts, and where a gateway has refused the call for good.
//
// If ctx ended because a lease was lost, that is the error: ErrLeaseLost, which no other try can change, and ErrOutcomeUnknown if err is. If
// a gateway has answered that the lock is held, that is the error, with the cause ctx.Err(): held is the last such answer, or nil.
func endedWith(ctx context.Context, err, held error) error {
	if ctx.Err() == nil || err == nil || !unserved(err) && !errors.Is(err, ErrLockHeld) {
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
	return err
}

// endedByLoss says that the error is one of lostDuring: no gateway has answered, and the lease that was lost may be another one than the call's.
func endedByLoss(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && isLost(failed.Cause)
}

// lostDuring makes ErrLeaseLost of the failure of a call whose ctx ended with a lease.
func lostDuring(err, lost error) error {
	op, earlier := "", error(nil)
	var failed *Error
	var foreign *AnswerError
	switch {
	case errors.As(err, &failed):
		op, earlier = failed.Op, failed.Earlier
	case errors.As(err, &foreign):
		op = foreign.Op
	}
	problem := &api.Problem{
		Type: "about:blank", Title: "Lease lost", Status: http.StatusConflict, Code: api.CodeLeaseLost, Outcome: api.OutcomeNotApplied,
		Detail: lost.Error() + ". It was not applied.",
	}
	if inner := ProblemOf(lost); inner != nil {
		problem.Reason = inner.Reason
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		problem.Outcome = api.OutcomeUnknown
		problem.Detail = lost.Error() + ". It may have been applied: the fence decides."
	}
	return &Error{Op: op, Problem: problem, Cause: lost, Earlier: earlier}
}
