package endpoint

import (
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
)

const (
	// failuresPerSecond is how many requests a second whose credential is refused are answered so, for each address.
	failuresPerSecond = 1000
	// limitRetry is when a principal that has created as much as one may should try again.
	limitRetry = time.Minute
	// slotRetry is when a caller that uses all of its slots should try again.
	slotRetry = time.Second
)

// count finds out which caller sends a request, and counts it.
func (s *Server) count(w *Answer, r *http.Request) error {
	if w.Principal == access.Anyone {
		w.Caller = s.limits.OfAddress(s.Address(r))
	} else {
		w.Caller = s.limits.OfPrincipal(w.Principal)
	}
	if wait := w.Caller.Take(); wait > 0 {
		return s.RateLimited(metrics.LimitRequests, "You send more requests a second than one caller may "+
			"(--caller-requests-max).", wait)
	}
	return nil
}

// CountFailure counts a request whose credential was refused, and returns its answer.
func (s *Server) CountFailure(r *http.Request, refusal error) error {
	if wait := s.Failures.OfAddress(s.Address(r)).Take(); wait > 0 {
		return s.RateLimited(metrics.LimitFailures, "Too many requests from this address had a bad credential.", wait)
	}
	return refusal
}

// Enter takes one of the slots of a caller. It must be left in any case.
func (s *Server) Enter(slots *limits.Slots, limit, what string) error {
	if slots.Enter() {
		return nil
	}
	return s.RateLimited(limit, "You have "+what+".", slotRetry)
}

// ShareOf is how many of what a gateway has are for a caller: the last tenth is for those with the scope on all names.
func ShareOf(most int, principal *access.Principal, scope access.Scope) int64 {
	if !principal.May(scope, "") {
		most -= most / 10
	}
	return int64(most)
}

// RateLimited is the answer to a request that changed nothing, and that its caller may send again later.
func (s *Server) RateLimited(limit, detail string, wait time.Duration) *api.Problem {
	s.Metrics.RateLimited(limit)
	answer := Problem(http.StatusTooManyRequests, api.CodeRateLimited, detail+" Nothing was changed: try again later.")
	answer.Retryable, answer.Outcome = true, api.OutcomeNotApplied
	answer.RecommendedRetryMS = new(max(1, Jittered(wait).Milliseconds()))
	return answer
}
