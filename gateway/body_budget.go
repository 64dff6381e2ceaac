package gateway

import (
	"cmp"
	"container/list"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/limits"
)

const (
	// bodyFreeBytes of each body do not count: a connection itself costs as much. Every call on a lease fits in, so large
	// bodies of others do not block it.
	bodyFreeBytes = 8 << 10
	// bodyStalled is how long an arriving body may go without growing before it is dropped for another.
	bodyStalled = time.Second
)

var (
	errBodiesFull         = errors.New("the bodies of requests hold too many bytes")
	errBodiesOfCallerFull = errors.New("the bodies of one caller hold too many bytes")
)

// bodyBudget bounds the memory for the bodies of all requests, from their first bytes to their answers, or to a wait
// before the answer. One caller may use half of it. When either is used up, it drops bodies that have stalled.
// Otherwise their clients could hold it for --body-timeout, and honest ones would be refused meanwhile.
type bodyBudget struct {
	max     int64
	stalled time.Duration

	mu  sync.Mutex // also guards the Bodies of callers
	all limits.Bodies
}

// bodyShare is the share of one body in the budget. Its methods may be called on nil, for a body that does not count.
type bodyShare struct {
	budget *bodyBudget
	caller *limits.Bodies
	cut    func() // ends the current read of the body

	// Guarded by budget.mu.
	bytes    int64
	grownAt  time.Time
	inAll    *list.Element // of the arriving bodies; nil: the body is not arriving
	inCaller *list.Element // of those of the caller
	gone     bool          // it was dropped or freed
	refusal  error         // why it was dropped
}

// grow takes more bytes for an arriving body. It returns errBodiesFull or errBodiesOfCallerFull if there is no room, or
// if the body was dropped. A single body of a caller may use more than half of the budget: any body fits in alone.
func (s *bodyShare) grow(bytes int) error {
	if s == nil {
		return nil
	}
	b, more := s.budget, int64(bytes)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !s.gone && s.caller.Bytes > s.bytes && s.caller.Bytes+more > b.max/2 {
		if !b.dropStalledLocked(&s.caller.Arriving, s, errBodiesOfCallerFull) {
			return errBodiesOfCallerFull
		}
	}
	for !s.gone && b.all.Bytes+more > b.max {
		if !b.dropStalledLocked(&b.all.Arriving, s, errBodiesFull) {
			return errBodiesFull
		}
	}
	if s.gone {
		return s.refusal
	}
	s.addLocked(more)
	s.stopArrivingLocked()
	s.grownAt = time.Now()
	s.inAll, s.inCaller = b.all.Arriving.PushBack(s), s.caller.Arriving.PushBack(s)
	return nil
}

// dropStalledLocked drops the body that has not grown for the longest time, and reports whether it has stalled. A body
// does not give way to itself.
func (b *bodyBudget) dropStalledLocked(arriving *list.List, to *bodyShare, refusal error) bool {
	oldest := arriving.Front()
	if oldest == nil {
		return false
	}
	victim := oldest.Value.(*bodyShare)
	if victim == to || time.Since(victim.grownAt) < b.stalled {
		return false
	}
	victim.refusal = refusal
	victim.freeLocked()
	victim.cut()
	return true
}

// locked calls change while the budget is locked.
func (s *bodyShare) locked(change func()) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	change()
}

// arrived notes that the gateway works on what it has read: the share stays, and is not dropped.
func (s *bodyShare) arrived() { s.locked(s.stopArrivingLocked) }

// shrink frees a part.
func (s *bodyShare) shrink(bytes int) {
	s.locked(func() {
		if !s.gone {
			s.addLocked(-int64(bytes))
		}
	})
}

// free frees everything. It does not call cut, and nothing does after it.
func (s *bodyShare) free() { s.locked(s.freeLocked) }

// dropped returns why the body was dropped for another; nil: it was not.
func (s *bodyShare) dropped() (refusal error) {
	s.locked(func() { refusal = s.refusal })
	return refusal
}

func (s *bodyShare) freeLocked() {
	s.stopArrivingLocked()
	s.addLocked(-s.bytes)
	s.gone = true
}

func (s *bodyShare) addLocked(bytes int64) {
	s.bytes += bytes
	s.caller.Bytes += bytes
	s.budget.all.Bytes += bytes
}

func (s *bodyShare) stopArrivingLocked() {
	if s.inAll != nil {
		s.budget.all.Arriving.Remove(s.inAll)
		s.caller.Arriving.Remove(s.inCaller)
		s.inAll, s.inCaller = nil, nil
	}
}

// readCounted reads a body that may be long. Its buffer grows as the body arrives, since a client may announce a long
// body and send nothing. It returns an error of grow if there is no room, or if the body was dropped for another. The
// route may be public: then the body is that of its address.
func (g *Gateway) readCounted(w *answerWriter, r *http.Request) ([]byte, error) {
	if w.caller == nil {
		w.caller = g.limits.OfAddress(g.address(r))
	}
	controller := http.NewResponseController(w)
	share := &bodyShare{budget: &g.bodies, caller: &w.caller.Bodies, cut: func() { _ = controller.SetReadDeadline(time.Now()) }}
	w.share = share
	most := g.config.BodyBytesMax + 1
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1) // the last byte stays free and shows the end
	}
	input := http.MaxBytesReader(w, r.Body, g.config.BodyBytesMax)
	body := make([]byte, 0, min(bodyFreeBytes, most))
	for {
		if len(body) == cap(body) {
			room := int(min(2*int64(cap(body)), most))
			if err := share.grow(room - cap(body)); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := input.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			share.arrived()
			return body, nil
		}
		if err != nil {
			return nil, cmp.Or(share.dropped(), err)
		}
	}
}
