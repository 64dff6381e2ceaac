package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// ErrLeaseReleased is the cause of a context that ended because this process released its lease: by Release, Resign,
// or the end of a session.
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

// Holder returns the holder of the lock, for an error that matches ErrLockHeld. It is nil for another error, and if
// the lock is free but other waiters are before the caller in the queue.
func Holder(err error) *api.Holder {
	if problem := ProblemOf(err); problem != nil {
		return problem.Holder
	}
	return nil
}

// Cycle returns the waits that would form a deadlock, for an error that matches ErrDeadlock, and nil for another
// error. The first wait is the caller's, and the last one waits for the caller.
func Cycle(err error) []api.Wait {
	if problem := ProblemOf(err); problem != nil {
		return problem.Cycle
	}
	return nil
}
