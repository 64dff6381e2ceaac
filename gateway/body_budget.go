package gateway

import (
	"container/list"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const (
	// bodyFreeBytes of each body are not counted: a connection itself costs as much. Every call on a lease fits in, so it passes whatever others
	// send.
	bodyFreeBytes = 8 << 10
	// bodyStalled is how long a body that arrives may go without growing before it gives way to another.
	bodyStalled = time.Second
)

var errBodiesFull = errors.New("too many bytes of bodies are held")

func bodiesFull() *api.Problem {
	return busy("This gateway holds as many bytes of request bodies as it may (--bodies-bytes-max). Nothing was changed: try again a little later, or another gateway.")
}

// bodyBudget bounds the memory for bodies, of all requests together, from their first bytes to their answers, or to a wait before these. Where it is used up, the bodies that
// have stalled give way: their clients would hold it for as long as --body-timeout, and honest ones would be refused meanwhile.
type bodyBudget struct {
	max     int64
	stalled time.Duration

	mu       sync.Mutex
	used     int64
	arriving list.List // of *bodyShare, the one that has grown last at the back
}

// bodyShare is what one body has of the budget. All its methods may be called on nil, which is a body that is not counted.
type bodyShare struct {
	budget *bodyBudget
	cut    func() // ends the read of the body that is under way

	// Guarded by budget.mu.
	bytes   int64
	grownAt time.Time
	place   *list.Element // in arriving; nil: the body does not arrive
	gone    bool          // it has given way, or was freed
}

// grow takes more for a body that arrives, and reports whether there is room for it.
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
	if s.place == nil {
		s.place = b.arriving.PushBack(s)
	} else {
		b.arriving.MoveToBack(s.place)
	}
	return true
}

// arrived says that the gateway works on what it has read: the share stays, and does not give way.
func (s *bodyShare) arrived() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.leaveLocked()
}

// shrink gives a part back.
func (s *bodyShare) shrink(bytes int) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if !s.gone {
		s.bytes -= int64(bytes)
		s.budget.used -= int64(bytes)
	}
}

// free gives all back. After it, cut is not called.
func (s *bodyShare) free() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.freeLocked()
}

func (s *bodyShare) freeLocked() {
	s.leaveLocked()
	s.budget.used -= s.bytes
	s.bytes, s.gone = 0, true
}

func (s *bodyShare) leaveLocked() {
	if s.place != nil {
		s.budget.arriving.Remove(s.place)
		s.place = nil
	}
}

// readCounted reads a body that may be long into room that grows as it comes: a client may announce that much is to come, and send nothing.
// It returns errBodiesFull where there is no room, or the body has given way to another.
func (g *Gateway) readCounted(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	controller := http.NewResponseController(w)
	share := &bodyShare{budget: &g.bodies, cut: func() { _ = controller.SetReadDeadline(time.Now()) }}
	shareUntilAnswered(w, share)
	most := g.config.BodyBytesMax + 1
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength+1) // of which the last byte is never filled, and shows the end
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
		if err != nil && share.gaveWay() {
			err = errBodiesFull
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *bodyShare) gaveWay() bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.gone
}
