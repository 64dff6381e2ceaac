package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// ErrLeaseReleased is the cause of contexts of what this process gave back: by Release, Resign, or the end of a session.
var ErrLeaseReleased = errors.New("the lease was released")

var errTTL = errors.New("its TTL may have run out before a renewal was answered")

// reasonMaxHold is the reason of lease_lost and token_stale where a lease has reached the longest time that its policy lets one be held.
const reasonMaxHold = "max_hold"

// errMaxHold is what a gateway answers to a renewal from then on.
var errMaxHold = &api.Problem{
	Type: "about:blank", Title: "Not renewed", Status: http.StatusConflict, Code: api.CodeLeaseLost, Reason: reasonMaxHold,
	Detail: "It has reached the longest time that its policy lets one be held (max_hold_ms). Stop the work that it protected; acquire the lock anew to go on.",
}

// LostError is a lease that this process must not rely on any more. It matches [ErrLeaseLost] and, since it is the error of a
// context, context.Canceled.
type LostError struct {
	// What is what was lost, e.g. "the lease on job-42 with token 34".
	What string
	// Why is the refusal that told it, or that its TTL has run out.
	Why error
}

func (e *LostError) Error() string { return fmt.Sprintf("%s is lost: %v", e.What, e.Why) }

// Is compares with ErrLeaseLost and context.Canceled.
func (e *LostError) Is(target error) bool {
	return target == ErrLeaseLost || target == context.Canceled
}

// Unwrap gives the reason.
func (e *LostError) Unwrap() error { return e.Why }

func isLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}

// ProblemOf gives the problem of a refusal, nil if err is none.
func ProblemOf(err error) *api.Problem {
	var problem *api.Problem
	_ = errors.As(err, &problem)
	return problem
}

// Holder tells who holds the lock, of an error that is ErrLockHeld. It is nil if err is another, and where the lock is free but others
// stand before the caller in the line.
func Holder(err error) *api.Holder {
	if problem := ProblemOf(err); problem != nil {
		return problem.Holder
	}
	return nil
}

// Cycle tells who waits for whom, of an error that is ErrDeadlock: the first is the caller, for whom the last waits. It is nil otherwise.
func Cycle(err error) []api.Wait {
	if problem := ProblemOf(err); problem != nil {
		return problem.Cycle
	}
	return nil
}
