package gateway

import (
	"container/list"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyFreeBytes of each body do not count: a connection itself costs as much. Every call on a lease fits in, so large
	// bodies of others do not block it.
	bodyFreeBytes = 8 << 10
	// bodyStalled is how long an arriving body may go without growing before it is dropped for another.
	bodyStalled = time.Second
)

var errBodiesFull = errors.New("the bodies of requests hold too many bytes")

// bodyBudget bounds the memory for the bodies of all requests, from their first bytes to their answers, or to a wait
// before the answer. When it is used up, it drops bodies that have stalled. Otherwise their clients could hold it for
// --body-timeout, and honest ones would be refused meanwhile.
type bodyBudget struct {
	max     int64
	stalled time.Duration

	mu       sync.Mutex
	used     int64
	arriving list.List // of *bodyShare; the one that grew last is at the back
}

// bodyShare is the share of one body in the budget. Its methods may be called on nil, for a body that does not count.
type bodyShare struct {
	budget *bodyBudget
	cut    func() // ends the current read of the body

	// Guarded by budget.mu.
	bytes   int64
	grownAt time.Time
	element *list.Element // of arriving; nil: the body is not arriving
	gone    bool          // it was dropped or freed
}

// grow takes more bytes for an arriving body, and reports whether there is room.
func (s *bodyShare) grow(bytes int) bool {
	if s == nil {
		return true
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for !s.gone && b.used+int64(bytes) > b.max {
		oldest := b.arriving.Front()
		if oldest == nil || oldest.Value == s || now.Sub(oldest.Value.(*bodyShare).grownAt) < b.stalled {
			return false
		}
		victim := oldest.Value.(*bodyShare)
		victim.freeLocked()
		victim.cut()
	}
	if s.gone {
		return false
	}
	b.used += int64(bytes)
	s.bytes += int64(bytes)
	s.grownAt = now
	if s.element == nil {
		s.element = b.arriving.PushBack(s)
	} else {
		b.arriving.MoveToBack(s.element)
	}
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
			s.bytes -= int64(bytes)
			s.budget.used -= int64(bytes)
		}
	})
}

// free frees everything. It does not call cut, and nothing does after it.
func (s *bodyShare) free() { s.locked(s.freeLocked) }

// dropped reports whether the body was dropped for another.
func (s *bodyShare) dropped() (gone bool) {
	s.locked(func() { gone = s.gone })
	return gone
}

func (s *bodyShare) freeLocked() {
	s.stopArrivingLocked()
	s.budget.used -= s.bytes
	s.bytes, s.gone = 0, true
}

func (s *bodyShare) stopArrivingLocked() {
	if s.element != nil {
		s.budget.arriving.Remove(s.element)
		s.element = nil
	}
}

// readCounted reads a body that may be long. Its buffer grows as the body arrives, since a client may announce a long
// body and send nothing. It returns errBodiesFull if there is no room, or if the body was dropped for another.
func (g *Gateway) readCounted(w *answerWriter, r *http.Request) ([]byte, error) {
	controller := http.NewResponseController(w)
	share := &bodyShare{budget: &g.bodies, cut: func() { _ = controller.SetReadDeadline(time.Now()) }}
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
			if !share.grow(room - cap(body)) {
				return nil, errBodiesFull
			}
			body = append(make([]byte, 0, room), body...)
		}
		n, err := input.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			share.arrived()
			return body, nil
		}
		if err != nil && share.dropped() {
			err = errBodiesFull
		}
		if err != nil {
			return nil, err
		}
	}
}
