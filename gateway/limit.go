package gateway

import (
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

const (
	// failuresPerSecond is how many requests a second whose credential is refused are answered so, for each address.
	failuresPerSecond = 1000
	// CallerBulkStreamsMax is how many bulk streams one caller may have open: half of all.
	CallerBulkStreamsMax = bulkStreamsMax / 2
	// leasesCountAge is the age of a count of leases from which on it says nothing.
	leasesCountAge = 10 * time.Minute
	// limitRetry is when a principal that has created as much as one may should try again.
	limitRetry = time.Minute
	// slotRetry is when a caller that uses all of its slots should try again.
	slotRetry = time.Second
)

// count finds out which caller sends a request, and counts it.
func (g *Gateway) count(w *answerWriter, r *http.Request) error {
	if w.principal == access.Anyone {
		w.caller = g.limits.OfAddress(g.address(r))
	} else {
		w.caller = g.limits.OfPrincipal(w.principal)
	}
	if wait := w.caller.Take(); wait > 0 {
		return g.rateLimited(metrics.LimitRequests, "You send more requests a second than one caller may "+
			"(--caller-requests-max).", wait)
	}
	return nil
}

// countFailure counts a request whose credential was refused, and returns its answer.
func (g *Gateway) countFailure(r *http.Request, refusal error) error {
	if wait := g.failures.OfAddress(g.address(r)).Take(); wait > 0 {
		return g.rateLimited(metrics.LimitFailures, "Too many requests from this address had a bad credential.", wait)
	}
	return refusal
}

// enter takes one of the slots of a caller. It must be left in any case.
func (g *Gateway) enter(slots *limits.Slots, limit, what string) error {
	if slots.Enter() {
		return nil
	}
	return g.rateLimited(limit, "You have "+what+".", slotRetry)
}

// checkLeases refuses an acquire or a session of a principal that had as many leases and sessions as one may when the
// database counted last: some seconds ago. To know it exactly, all acquires of a principal would have to wait for each other.
func (g *Gateway) checkLeases(principal string) error {
	most, known := int64(g.config.CallerLeasesMax), g.known.Load()
	if most == 0 || principal == "" || known.Inventory.LeasesOf[principal] < most ||
		known.at().Sub(known.Inventory.At) > leasesCountAge {
		return nil
	}
	return g.rateLimited(metrics.LimitLeases, "You have as many leases and sessions as one caller may (--caller-leases-max).",
		store.SampleInterval)
}

// shareOf is how many of what a gateway has are for a caller: the last tenth is for those with the scope on all names.
func shareOf(most int, principal *access.Principal, scope access.Scope) int64 {
	if !principal.May(scope, "") {
		most -= most / 10
	}
	return int64(most)
}

// rateLimited is the answer to a request that changed nothing, and that its caller may send again later.
func (g *Gateway) rateLimited(limit, detail string, wait time.Duration) *api.Problem {
	g.metrics.RateLimited(limit)
	answer := problem(http.StatusTooManyRequests, api.CodeRateLimited, detail+" Nothing was changed: try again later.")
	answer.Retryable, answer.Outcome = true, api.OutcomeNotApplied
	answer.RecommendedRetryMS = new(max(1, jittered(wait).Milliseconds()))
	return answer
}
