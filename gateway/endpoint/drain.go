package endpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencegate/fencegate/store"
)

// ErrDraining says that the gateway began to send its clients elsewhere while a request waited.
var ErrDraining = errors.New("the gateway is draining")

// errMoved is ErrDraining where the gateway goes on: waiters keep their places for a moment.
var errMoved = fmt.Errorf("%w: %w", ErrDraining, store.ErrMoved)

// drain sends the clients of a gateway to others: at its shutdown, and before, when an administrator wants it.
type drain struct {
	mu    sync.Mutex
	timer *time.Timer     // of the DrainDelay; nil: no drain has begun
	last  bool            // the shutdown has begun
	stay  context.Context // ends the DrainDelay after a drain has begun
	leave context.CancelFunc
}

// Staying returns a context for whatever a client waits for: acquires and event streams. It ends the DrainDelay after
// a drain has begun.
func (s *Server) Staying() context.Context {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	return s.drain.stay
}

// whyLeave is why clients are sent elsewhere.
func (s *Server) whyLeave() error {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	if s.drain.last {
		return ErrDraining
	}
	return errMoved
}

// SetDraining begins a drain or ends it, and reports whether that is a change. From the begin on, /readyz fails, and
// each answer ends its connection. It returns an *api.Problem if the gateway shuts down: that drain does not end.
func (s *Server) SetDraining(draining bool) (changed bool, err error) {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	switch {
	case s.drain.last && !draining:
		return false, Busy("The gateway is shutting down.")
	case draining == (s.drain.timer != nil):
		return false, nil
	case draining:
		s.drainLocked()
		return true, nil
	}
	s.Leaving.Store(false)
	if !s.drain.timer.Stop() { // the clients were sent away
		s.drain.stay, s.drain.leave = context.WithCancel(s.Draining)
	}
	s.drain.timer = nil
	return true, nil
}

// DrainToEnd is SetDraining for the shutdown. It returns Staying.
func (s *Server) DrainToEnd() context.Context {
	s.drain.mu.Lock()
	defer s.drain.mu.Unlock()
	s.drain.last = true
	if s.drain.timer == nil {
		s.drainLocked()
	}
	return s.drain.stay
}

func (s *Server) drainLocked() {
	s.Leaving.Store(true)
	s.drain.timer = time.AfterFunc(s.DrainDelay, s.drain.leave)
}
