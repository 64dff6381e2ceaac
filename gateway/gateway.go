// Package gateway is the HTTP source of fencegate: routes, handlers, the table from errors to statuses, metrics, and
// the server that ends without dropping what it took. It decides nothing: every verdict comes from the store, and
// any number of gateways may stand before one database.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/watch"
)

// Leases is what the gateway needs to grant leases. An Acquire that waits leaves the line when its context ends: it gives back what it
// was granted after that, and cuts no statement off.
type Leases interface {
	Acquire(context.Context, store.AcquireRequest) (store.Lease, error)
	Renew(context.Context, store.LeaseRef, time.Duration) (store.Lease, error)
	ReleaseLease(context.Context, store.LeaseRef) (store.Released, error)
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	Lock(context.Context, store.Name) (store.Lock, error)
	LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error)
	Locks(context.Context, store.LockQuery) ([]store.Lock, error)
	CountLocks(context.Context, store.LockQuery) (int64, error)
	Elections(context.Context, store.ElectionQuery) ([]store.Lock, error)
	Leases(context.Context, store.LeaseQuery) ([]store.ShownLease, error)
	Waits(ctx context.Context, lock store.Name, limit int) (store.WaitGraph, error)
}

// Watches is what the gateway needs to tell what happens to a lock.
type Watches interface {
	Watch(ctx context.Context, lock store.Name, after *int64) (*watch.Subscription, error)
}

// Sessions is what the gateway needs to keep sessions.
type Sessions interface {
	CreateSession(context.Context, store.SessionRequest) (store.Session, error)
	KeepAlive(ctx context.Context, id uuid.UUID) (store.Session, error)
	Session(ctx context.Context, id uuid.UUID) (session store.Session, leases int64, err error)
	EndSession(ctx context.Context, id uuid.UUID) (released int64, err error)
	Sessions(context.Context, store.SessionQuery) ([]store.ShownSession, error)
}

// Records is what the gateway needs to write and read records.
type Records interface {
	Commit(context.Context, store.Write) (store.Result, error)
	Submit(ctx context.Context, write store.Write, done func(store.Result, error))
	Transact(context.Context, store.Transaction) (store.TransactionResult, error)
	Record(ctx context.Context, resource, key store.Name) (store.Record, error)
	Records(context.Context, store.RecordQuery) ([]store.Record, error)
}

// Fences is what the gateway needs to show fences and to set policies.
type Fences interface {
	Fence(context.Context, store.Name) (store.Fence, error)
	Policies(context.Context) ([]store.Policy, error)
	Policy(ctx context.Context, prefix string) (store.Policy, error)
	PutPolicy(context.Context, store.Policy) error
	DeletePolicy(ctx context.Context, prefix string) error
}

// Rejections is what the gateway needs to show who was shut out.
type Rejections interface {
	Rejections(context.Context, store.RejectionQuery) ([]store.Rejection, error)
	RejectionSummary(context.Context, store.RejectionFilter) (store.RejectionSummary, error)
	RejectionIDs(context.Context, store.RejectionFilter, store.RejectionOrder) ([]int64, error)
	RejectionsOf(ctx context.Context, ids []int64) ([]store.Rejection, error)
	FollowRejections() *store.RejectionFollower
	RejectionsSince(ctx context.Context, filter store.RejectionFilter, stopped time.Time) (store.RejectionChanges, error)
}

// Overviews is what the gateway needs to tell and to show how all gateways and the database are.
type Overviews interface {
	KeepSample(context.Context, store.GatewayState, time.Duration, store.Totals) (at time.Time, err error)
	ForgetGateway(ctx context.Context, id uuid.UUID) error
	Recount(context.Context) (counted bool, err error)
	Overview(context.Context) (store.Overview, error)
	Points(ctx context.Context, length time.Duration) ([]store.Point, error)
	LastPoint(context.Context) (store.Point, error)
}

// Vitals is what the gateway tells of itself.
type Vitals interface {
	GatewayID() uuid.UUID
	Waiting() int
	Listening() bool
	PoolStats() store.PoolStats
	GroupStats() groupcommit.Stats
}

// Prober says whether the gateway can serve.
type Prober interface {
	Ready(context.Context) error
}

// Backend is everything behind the gateway; *engine.Engine is one.
type Backend interface {
	Leases
	Watches
	Sessions
	Records
	Fences
	Rejections
	Overviews
	Vitals
	Prober
}

// Recorder notes rejected writes, without I/O.
type Recorder interface {
	Record(rejected *store.RejectedError, source, address string)
}

// Config is how a gateway behaves. The zero value of a field is its default.
type Config struct {
	// Name is what the gateway is called beside others. Default "fencegate"; 1 to 100 printable characters.
	Name string
	// BodyBytesMax bounds the body of a request, and so a value. Default 1 MiB; 1 KiB to 256 MiB.
	BodyBytesMax int64
	// BodiesBytesMax bounds the bodies of all requests that arrive or are worked on, beyond 8 KiB of each. Default 128 MiB, or four bodies of
	// BodyBytesMax where that is more; at least two.
	BodiesBytesMax int64
	// BodyTimeout is how long the body of a request may take to arrive. Default 30 s; at least 100 ms.
	BodyTimeout time.Duration
	// RequestTimeout bounds the work on a request after its body has arrived. Default 15 s; at least 100 ms.
	RequestTimeout time.Duration
	// ShutdownTimeout is how long requests under way may take when the server ends. Default 20 s.
	ShutdownTimeout time.Duration
	// KeepAlive is how long a stream of events stays silent before a comment shows that it lives. Default 15 s; at least 100 ms.
	KeepAlive time.Duration
	// WatchesMax bounds the streams of events that are open at the same time. Default 10,000; at least 1.
	WatchesMax int
	// Logger is told of failures and, at level debug, of every request. Default: nothing is logged.
	Logger *slog.Logger
	// TrustedProxies are believed what they say of a client's address in X-Forwarded-For, for the record of rejections and the log. Default: none.
	TrustedProxies []netip.Prefix
	// RefusalDelayMax is how long the answer to a write may be delayed whose token was refused again and again. Default 0: none is; at most
	// 1 min.
	RefusalDelayMax time.Duration
	// AccessLogSample has one in so many requests logged at level info, and every one that is answered with 500 or more. Default 0: none;
	// 1: every one.
	AccessLogSample int
	// Tracing says whether requests have spans. Default: none have.
	Tracing store.Tracing
}

// ErrInvalidConfig says that a setting is outside its limits; the message names its flag.
var ErrInvalidConfig = errors.New("invalid configuration")

func (c Config) withDefaults() (Config, error) {
	c.Name = cmp.Or(c.Name, "fencegate")
	c.BodyBytesMax = cmp.Or(c.BodyBytesMax, 1<<20)
	c.BodiesBytesMax = cmp.Or(c.BodiesBytesMax, max(128<<20, 4*c.BodyBytesMax))
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 30*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 15*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 20*time.Second)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.WatchesMax = cmp.Or(c.WatchesMax, 10_000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case utf8.RuneCountInString(c.Name) > 100 || strings.ContainsFunc(c.Name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }):
		return c, fmt.Errorf("%w: --gateway-name is %q, it must be 1 to 100 printable characters", ErrInvalidConfig, c.Name)
	case c.BodyBytesMax < 1<<10 || c.BodyBytesMax > 256<<20:
		return c, fmt.Errorf("%w: --body-bytes-max is %d, it must be 1024 to 268435456", ErrInvalidConfig, c.BodyBytesMax)
	case c.BodiesBytesMax < 2*c.BodyBytesMax:
		return c, fmt.Errorf("%w: --bodies-bytes-max is %d, it must be at least twice --body-bytes-max, %d", ErrInvalidConfig, c.BodiesBytesMax, 2*c.BodyBytesMax)
	case c.BodyTimeout < 100*time.Millisecond:
		return c, fmt.Errorf("%w: --body-timeout is %s, it must be at least 100ms", ErrInvalidConfig, c.BodyTimeout)
	case c.RequestTimeout < 100*time.Millisecond:
		return c, fmt.Errorf("%w: --request-timeout is %s, it must be at least 100ms", ErrInvalidConfig, c.RequestTimeout)
	case c.ShutdownTimeout < 0:
		return c, fmt.Errorf("%w: --shutdown-timeout is %s, it can't be negative", ErrInvalidConfig, c.ShutdownTimeout)
	case c.KeepAlive < 100*time.Millisecond:
		return c, fmt.Errorf("%w: --event-keep-alive is %s, it must be at least 100ms", ErrInvalidConfig, c.KeepAlive)
	case c.AccessLogSample < 0:
		return c, fmt.Errorf("%w: --access-log-sample is %d, it must be 0 (none), 1 (every request) or more (one in so many)", ErrInvalidConfig, c.AccessLogSample)
	case c.RefusalDelayMax < 0 || c.RefusalDelayMax > time.Minute:
		return c, fmt.Errorf("%w: --refusal-delay-max is %s, it must be 0 to 1m", ErrInvalidConfig, c.RefusalDelayMax)
	case c.WatchesMax < 1:
		return c, fmt.Errorf("%w: --watches-max is %d, it must be at least 1", ErrInvalidConfig, c.WatchesMax)
	}
	return c, nil
}

// Gateway answers the HTTP API.
type Gateway struct {
	config   Config
	backend  Backend
	recorder Recorder
	metrics  *Metrics
	handler  http.Handler

	answerTimeout  time.Duration // for an answer to be taken by its client
	eventTimeout   time.Duration // for one event to be taken by its client
	hangUpInterval time.Duration // between two looks at the connection of a client that waits
	bodies         bodyBudget
	watching       atomic.Int64  // how many streams of events are open
	bulkStreams    atomic.Int64  // how many streams of writes are open
	requests       atomic.Uint64 // that were answered, where one in so many is logged

	started time.Time
	known   atomic.Pointer[knownOverview] // nil: nothing yet

	overviews *broadcast
	history   *history

	rejected *rejectionHub // tells those who follow the rejections

	refusals *refusalDelays

	deadline sharedDeadline // of the writes that are under way

	draining context.Context // ends when the gateway is told to end: nobody waits any more
	drain    context.CancelFunc

	cut    context.Context // ends when the work that is still under way is cut off
	cutOff context.CancelFunc
}

// New returns a Gateway before backend. It returns ErrInvalidConfig.
func New(config Config, backend Backend, recorder Recorder, metrics *Metrics) (*Gateway, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Gateway{config: config, backend: backend, recorder: recorder, metrics: metrics, answerTimeout: writeTimeout, eventTimeout: eventTimeout, hangUpInterval: hangUpInterval, started: time.Now()}
	g.bodies.max, g.bodies.stalled = config.BodiesBytesMax, bodyStalled
	g.draining, g.drain = context.WithCancel(context.Background())
	g.cut, g.cutOff = context.WithCancel(context.Background())
	g.rejected = &rejectionHub{backend: backend, interval: feedInterval, patience: feedPatience, behind: feedBehindMax, cut: g.cut}
	g.refusals = newRefusalDelays(g.draining, config.RefusalDelayMax, &metrics.refusalDelays)
	g.deadline.within(g.cut, config.RequestTimeout)
	g.overviews = newBroadcast(g.draining, g.tellOverviews)
	g.history = newHistory(func(ctx context.Context, length time.Duration) ([]store.Point, error) {
		return g.backend.Points(ctx, length)
	})
	metrics.watchOverview(g.lastOverview)
	g.handler = g.routes()
	return g, nil
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.hurry(w, r)
	g.handler.ServeHTTP(w, r)
}
