// Package endpoint is what all endpoints of the HTTP API have in common. It knows no lock and no write.
//
//   - routes.go: the kinds of handlers, and what is around every request;
//   - access.go: who may call a route, on which names; limit.go: how much a caller may, also of what is refused;
//   - query.go, body.go: reading requests; encode.go: writing answers; problem.go: the one table from errors to answers;
//   - event_stream.go: server-sent events, and one producer of events for many streams;
//   - client.go, connections.go: who is at the other end, and whether it still waits; drain.go: sending clients elsewhere;
//   - log.go: what is noted of a request, in the log and by spans, and what is not shown there.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/store"
)

// Config has the settings that endpoints need. gateway.Config describes them and applies defaults and limits; this
// package applies none.
type Config struct {
	Auth   auth.Authenticator
	Logger *slog.Logger
	// Rules say who may call a route, by its method and template: "GET /v1/locks/{lock}".
	Rules           map[string]AccessRule
	Names           []string
	TrustedProxies  []netip.Prefix
	Limits          limits.Config
	BodyBytesMax    int64
	BodiesBytesMax  int64
	BodyTimeout     time.Duration
	RequestTimeout  time.Duration
	ReadOnly        bool
	DrainDelay      time.Duration
	KeepAlive       time.Duration
	RefusalDelayMax time.Duration
	WatchesMax      int
	ConnectionsMax  int
	// AddressConnectionsMax bounds the connections from one address.
	AddressConnectionsMax int
	AccessLogSample       int
	Tracing               store.Tracing
}

// Server is what endpoints share while a gateway runs. The rooms of the API embed it.
type Server struct {
	Config
	Metrics     *metrics.Metrics
	CrossOrigin *http.CrossOriginProtection
	Connections Connections
	Bodies      BodyBudget
	Failures    *limits.Limits // of addresses whose requests are not authenticated

	AnswerTimeout  time.Duration // for a client to take an answer
	EventTimeout   time.Duration // for a client to take one event
	HangUpInterval time.Duration // between checks of the connection of a client that waits

	Refusals      Refusals
	Streams       atomic.Int64 // open event streams
	RefusalDelays *RefusalDelays

	Leaving  atomic.Bool     // a drain has begun: clients should connect elsewhere
	Draining context.Context // ends after the DrainDelay of a shutdown: no client waits any more
	Drain    context.CancelFunc
	Cut      context.Context // ends when the work still under way is cut off
	CutOff   context.CancelFunc

	limits   *limits.Limits // of callers
	requests atomic.Uint64  // answered, if some of them are logged
	deadline sharedDeadline // of the work under way
	drain    drain
}

// HeaderBytes bounds the header of a request. A token in it has up to 16 KiB.
const HeaderBytes = 24 << 10

const (
	answerTimeout = 2 * time.Minute  // an acquire that waits longer extends it
	eventTimeout  = 10 * time.Second // a stream may last for ever
)

// NewServer returns a Server. Its caller ends it by Drain and CutOff.
func NewServer(config Config, counted *metrics.Metrics) *Server {
	s := &Server{
		Config: config, Metrics: counted, CrossOrigin: http.NewCrossOriginProtection(), AnswerTimeout: answerTimeout,
		EventTimeout: eventTimeout, HangUpInterval: hangUpInterval, limits: limits.New(config.Limits),
		Failures: limits.New(limits.Config{RequestsPerSecond: failuresPerSecond}),
	}
	s.Connections = Connections{
		max: config.ConnectionsMax, perAddress: config.AddressConnectionsMax, StrangersMax: defaultStrangersMax, patience: strangerPatience,
		trusted: s.trusted,
		refused: func() { counted.RateLimited(metrics.LimitConnections) },
	}
	s.Bodies.max, s.Bodies.stalled = config.BodiesBytesMax, bodyStalled
	s.Draining, s.Drain = context.WithCancel(context.Background())
	s.drain.stay, s.drain.leave = context.WithCancel(s.Draining)
	s.Cut, s.CutOff = context.WithCancel(context.Background())
	s.RefusalDelays = NewRefusalDelays(s.Draining, config.RefusalDelayMax, &counted.RefusalDelays)
	s.deadline.within(s.Cut, config.RequestTimeout)
	return s
}

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
