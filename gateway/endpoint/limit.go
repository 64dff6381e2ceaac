package endpoint

import (
	"context"
	"hash/maphash"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

const (
	// failuresPerSecond is how many refused credentials a second each address may send before it is rate-limited.
	failuresPerSecond = 1000
	// limitRetry is when a principal should retry that has reached a limit of what one may create.
	limitRetry = time.Minute
	// slotRetry is when a caller that uses all of its slots should try again.
	slotRetry = time.Second
)

const overRequests = "You send more requests a second than one caller may (--caller-requests-max)."

// count finds out which caller sends a request, and counts it.
func (s *Server) count(w *Answer, r *http.Request) error {
	if w.Principal == access.Anyone {
		w.Caller = s.limits.OfAddress(s.Address(r))
	} else {
		w.Caller = s.limits.OfPrincipal(w.Principal)
	}
	if wait := w.Caller.Take(); wait > 0 {
		return s.RateLimited(metrics.LimitRequests, overRequests, wait)
	}
	return nil
}

// CountMore counts the further writes of a request that has several, each as a request of its own.
func (s *Server) CountMore(w *Answer, writes int) error {
	if writes < 1 {
		return nil
	}
	if wait := w.Caller.TakeMany(writes); wait > 0 {
		return s.RateLimited(metrics.LimitRequests, overRequests, wait)
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

// ShareOf is a caller's part of a limited number: the last tenth is reserved for callers with the scope on all names.
func ShareOf(most int, principal *access.Principal, scope access.Scope) int64 {
	if !principal.May(scope, "") {
		most -= most / 10
	}
	return int64(most)
}

// RateLimited is the answer to a request that changed nothing, and may be sent again later.
func (s *Server) RateLimited(limit, detail string, wait time.Duration) *api.Problem {
	s.Metrics.RateLimited(limit)
	answer := Problem(http.StatusTooManyRequests, api.CodeRateLimited, detail+" Nothing was changed: try again later.")
	answer.Retryable, answer.Outcome = true, api.OutcomeNotApplied
	answer.RecommendedRetryMS = new(max(1, Jittered(wait).Milliseconds()))
	return answer
}

const (
	// RefusalsFree is how many refusals of one token on one resource are answered without a delay. A holder that stops
	// after its first refusal does not exceed it.
	RefusalsFree = 3
	// RefusalDelayMin is the first delay; each further one is twice as long.
	RefusalDelayMin = 50 * time.Millisecond
	// RefusalDelaysMax bounds the answers that are delayed at the same time. Further ones are not delayed.
	RefusalDelaysMax = 8192
	// refusalSlots is how many tokens are remembered.
	refusalSlots = 1 << 16
)

// RefusalDelays delays the answers to clients that keep writing with a token that is refused for good, so that they do
// not slow down others. The verdict is certain by then: a delay holds no connection to the database, no lock, no queue
// slot and no body. It ends early when the client leaves or the gateway drains.
//
// A table of fixed size counts the refusals of each token on a resource, in one slot for each hash. A later token
// replaces the one in its slot, whose count then starts again.
type RefusalDelays struct {
	longest  time.Duration // 0: no delays
	draining context.Context
	metrics  *metrics.Delays

	seed    maphash.Seed
	slots   []atomic.Uint64 // 48 bits of the hash, and the count
	Delayed atomic.Int64
}

// NewRefusalDelays returns delays of at most longest; 0: none. They end with draining.
func NewRefusalDelays(draining context.Context, longest time.Duration, delays *metrics.Delays) *RefusalDelays {
	d := &RefusalDelays{longest: longest, draining: draining, metrics: delays, seed: maphash.MakeSeed()}
	if longest > 0 {
		d.slots = make([]atomic.Uint64, refusalSlots)
	}
	return d
}

// Hold delays the answer to a write, if its token was refused for good several times before.
func (d *RefusalDelays) Hold(w *Answer, r *http.Request, err error) {
	delay := d.next(err)
	if delay == 0 {
		return
	}
	defer d.Delayed.Add(-1)
	if d.Delayed.Add(1) > RefusalDelaysMax {
		return
	}
	w.Share.Free()
	d.metrics.Begin()
	defer d.metrics.End()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-d.draining.Done():
	}
}

// next counts a refusal and returns the delay of its answer.
func (d *RefusalDelays) next(err error) time.Duration {
	if len(d.slots) == 0 {
		return 0
	}
	rejected, ok := refusedForGood(err)
	if !ok {
		return 0
	}
	return d.after(d.Count(rejected))
}

// after returns the delay of the answer to the refusal with this number.
func (d *RefusalDelays) after(refusals uint64) time.Duration {
	if refusals <= RefusalsFree {
		return 0
	}
	const doublingsMax = 20
	return min(RefusalDelayMin<<min(refusals-RefusalsFree-1, doublingsMax), d.longest)
}

// Count returns the number of refusals, including this one. Two at the same time may count as one.
func (d *RefusalDelays) Count(rejected *store.RejectedError) uint64 {
	const countBits = 16
	sum := maphash.Comparable(d.seed, struct {
		resource store.Name
		token    int64
	}{rejected.Resource, rejected.Token})
	slot := &d.slots[sum%refusalSlots]
	count := uint64(1)
	if was := slot.Load(); was>>countBits == sum>>countBits {
		count = min(was&(1<<countBits-1)+1, 1<<countBits-1)
	}
	slot.Store(sum>>countBits<<countBits | count)
	return count
}

// IsRefusedForGood reports whether an error is such a rejection as Hold counts.
func IsRefusedForGood(err error) bool {
	_, ok := refusedForGood(err)
	return ok
}

// refusedForGood returns the rejection of a write whose token can't be admitted any more, or was never granted. Failed
// preconditions, repeated numbers and leases that are not live are not such rejections.
func refusedForGood(err error) (*store.RejectedError, bool) {
	rejected, ok := err.(*store.RejectedError) //nolint:errorlint // the store does not wrap it; errors.As allocates
	if !ok {
		return nil, false
	}
	switch rejected.Verdict {
	case store.VerdictTokenUnknown:
		return rejected, true
	case store.VerdictTokenStale:
		return rejected, rejected.Reason != "reused"
	}
	return nil, false
}
