package gateway

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/store"
)

const (
	// refusalsFree is how many refusals of one token on one resource are answered at once. A holder that stops when it learns that it has
	// lost its lease does not reach it.
	refusalsFree = 3
	// refusalDelayMin is the first delay; each is twice the one before.
	refusalDelayMin = 50 * time.Millisecond
	// refusalDelaysMax bounds the answers that are delayed at the same time. One more is not delayed.
	refusalDelaysMax = 8192
	// refusalSlots is how many tokens are remembered.
	refusalSlots = 1 << 16
	// bulkRefusalsMax is how many lines of a stream may be refused, none admitted between them, before each pause of its input.
	bulkRefusalsMax = 64
)

// refusalDelays delays the answers to clients that go on writing with a token that is refused for good, so that they do not take the time of
// others. The verdict stands already: a delay holds no connection to the database, no lock, no place in a queue and no body. It ends early
// when the client is gone or the gateway drains.
//
// The count of refusals of a token on a resource is kept in a table of fixed size, one slot for each hash: what comes later replaces what was
// there, whose count then begins anew.
type refusalDelays struct {
	longest  time.Duration // 0: none
	draining context.Context
	metrics  *refusalDelayMetrics

	seed    maphash.Seed
	slots   []atomic.Uint64 // 48 bits of the hash, and the count
	delayed atomic.Int64
}

func newRefusalDelays(draining context.Context, longest time.Duration, metrics *refusalDelayMetrics) *refusalDelays {
	d := &refusalDelays{longest: longest, draining: draining, metrics: metrics, seed: maphash.MakeSeed()}
	if longest > 0 {
		d.slots = make([]atomic.Uint64, refusalSlots)
	}
	return d
}

// hold delays the answer to a write, if its token was refused for good several times before.
func (d *refusalDelays) hold(w http.ResponseWriter, r *http.Request, err error) {
	delay := d.next(err)
	if delay == 0 {
		return
	}
	defer d.delayed.Add(-1)
	if d.delayed.Add(1) > refusalDelaysMax {
		return
	}
	freeBody(w)
	d.metrics.begin()
	defer d.metrics.end()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-d.draining.Done():
	}
}

// next counts a refusal and returns the delay of its answer.
func (d *refusalDelays) next(err error) time.Duration {
	if len(d.slots) == 0 {
		return 0
	}
	rejected, ok := refusedForGood(err)
	if !ok {
		return 0
	}
	return d.after(d.count(rejected))
}

// after is the delay of the answer to the refusal of this number.
func (d *refusalDelays) after(refusals uint64) time.Duration {
	if refusals <= refusalsFree {
		return 0
	}
	const doublingsMax = 20
	return min(refusalDelayMin<<min(refusals-refusalsFree-1, doublingsMax), d.longest)
}

// count returns how many refusals there were, with this one. Two at the same time may count as one.
func (d *refusalDelays) count(rejected *store.RejectedError) uint64 {
	const countBits = 16
	var hash maphash.Hash
	hash.SetSeed(d.seed)
	_, _ = hash.WriteString(string(rejected.Resource))
	var token [8]byte
	binary.LittleEndian.PutUint64(token[:], uint64(rejected.Token))
	_, _ = hash.Write(token[:])
	sum := hash.Sum64()
	slot := &d.slots[sum%refusalSlots]
	count := uint64(1)
	if was := slot.Load(); was>>countBits == sum>>countBits {
		count = min(was&(1<<countBits-1)+1, 1<<countBits-1)
	}
	slot.Store(sum>>countBits<<countBits | count)
	return count
}

// refusedForGood returns the rejection of a write whose token can't be admitted any more, or was never granted. A precondition that failed, a
// number that was used and a lease that is not live are no such rejections.
func refusedForGood(err error) (*store.RejectedError, bool) {
	rejected, ok := err.(*store.RejectedError) //nolint:errorlint // as it comes from the store; errors.As allocates
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

// streamRefusals counts the lines of a bulk stream that were refused for good since one was admitted. Its reader pauses for them: the
// verdicts are not delayed.
type streamRefusals struct {
	refused atomic.Uint64
	paused  uint64 // of the reader: as many were refused when it paused last
}

func (s *streamRefusals) judge(err error) {
	if err == nil {
		s.refused.Store(0)
	} else if _, ok := refusedForGood(err); ok {
		s.refused.Add(1)
	}
}

// pause returns how long the reader is to pause now.
func (s *streamRefusals) pause(d *refusalDelays) time.Duration {
	refused := s.refused.Load()
	if refused < s.paused {
		s.paused = 0
	}
	if len(d.slots) == 0 || refused < s.paused+bulkRefusalsMax {
		return 0
	}
	s.paused = refused
	return d.after(refusalsFree + refused/bulkRefusalsMax)
}
