package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// hint adds to the gateway's words, which are of the API, what the problem's numbers mean and which command or flag
// comes next; "" where there is nothing to add.
func hint(err error) string {
	var problem *api.Problem
	if !errors.As(err, &problem) {
		return ""
	}
	switch problem.Code {
	case api.CodeUnavailable:
		if failed := (*lockclient.Error)(nil); errors.As(err, &failed) && failed.Cause != nil {
			return "Is the gateway running there? Another is named by --url or FENCEGATE_URL; --timeout allows more time."
		}
	case api.CodeLockHeld:
		next := "\"fencegate lock get\" shows the holder; \"fencegate lock break\" ends its lease."
		if problem.RecommendedRetryMS != nil {
			next = fmt.Sprintf("Try again in %s. ", time.Duration(*problem.RecommendedRetryMS)*time.Millisecond) + next
		}
		return next
	case api.CodeTokenStale:
		if problem.Reason == "reused" {
			return nextNumber(problem)
		}
	case api.CodeTokenUnknown:
		if problem.GrantedToken != nil {
			return fmt.Sprintf("The newest token that was granted is %d.", *problem.GrantedToken)
		}
	case api.CodeLeaseMismatch:
		return "Give the lease_id that the acquire of this token printed: --lease-id."
	case api.CodeVersionMismatch:
		if problem.Version != nil && *problem.Version > 0 {
			return fmt.Sprintf("Its version is now %d.", *problem.Version)
		}
		return "There is no such record now."
	}
	return ""
}
