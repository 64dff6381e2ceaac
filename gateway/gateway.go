// Package gateway is the HTTP API of fencegate: routes and handlers, the table from errors to statuses, and the server
// that shuts down without dropping requests that it took. It decides nothing: every verdict comes from the store, and
// any number of gateways may serve one database.
//
// The routes and handlers of each entity are in files of its name: locks (their lists show leases and waiters, too),
// sessions, elections, records, transactions, bulk (POST /v1/writes), policies, tables, rejections, overview. All of
// them use:
//
//   - routes.go: the kinds of handlers; query.go: parameters of the URL; list.go: a paged list;
//   - event_stream.go: server-sent events; broadcast.go: one producer of events, many streams;
//   - access.go: who may call which route; fleet.go: which names are served here; browser.go: which requests of browsers are not their user's;
//   - middleware.go: around every request; problem.go: from errors to answers; waiting.go: clients that wait.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/gateway/terraform"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/readiness"
	"github.com/fencegate/fencegate/store/watch"
)

// Leases is what the gateway needs to grant, list and watch leases. When the context of an Acquire that waits ends, the
// Acquire leaves the queue. It cuts off no statement, and releases what it was granted after that.
type Leases interface {
	Acquire(context.Context, store.AcquireRequest) (store.Lease, error)
	Renew(context.Context, store.LeaseRef, time.Duration) (store.Lease, error)
	ReleaseLease(context.Context, store.LeaseRef) (store.Released, error)
	RequestedLease(ctx context.Context, lock store.Name, requestID string) (store.Lease, error)
	Break(ctx context.Context, lock store.Name, reason string) (store.Lease, error)
	Lock(context.Context, store.Name) (store.Lock, error)
	LockAndFence(context.Context, store.Name) (store.Lock, *store.Fence, error)
	Locks(context.Context, store.LockQuery) ([]store.Lock, error)
	CountLocks(context.Context, store.LockQuery) (int64, error)
	Elections(context.Context, store.ElectionQuery) ([]store.Lock, error)
	Leases(context.Context, store.LeaseQuery) ([]store.ShownLease, error)
	Waits(ctx context.Context, lock store.Name, limit int, within []string) (store.WaitGraph, error)
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
	DurableRecord(ctx context.Context, resource, key store.Name) (store.Record, error)
	Records(context.Context, store.RecordQuery) ([]store.Record, error)
}

// Fences is what the gateway needs to show and set fences, and to set policies.
type Fences interface {
	Fence(context.Context, store.Name) (store.Fence, error)
	SetFence(ctx context.Context, resource store.Name, last store.Accepted, reason string) (was store.Accepted, err error)
	Policies(context.Context) ([]store.Policy, error)
	Policy(ctx context.Context, prefix string) (store.Policy, error)
	PutPolicy(context.Context, store.Policy) error
	DeletePolicy(ctx context.Context, prefix string) error
}

// Tables is what the gateway needs to show protected tables.
type Tables interface {
	Tables(context.Context, store.TableQuery) ([]store.ProtectedTable, error)
}

// Rejections is what the gateway needs to show and stream rejected writes.
type Rejections interface {
	Rejections(context.Context, store.RejectionQuery) ([]store.Rejection, error)
	RejectionSummary(context.Context, store.RejectionFilter) (store.RejectionSummary, error)
	RejectionDetail(ctx context.Context, id int64, within []string) (store.RejectionDetail, error)
	FollowRejections() *store.RejectionFollower
	RejectionsSince(ctx context.Context, filter store.RejectionFilter, after time.Time) (store.RejectionChanges, error)
}

// Overviews is what the gateway needs to store its own state, and to show all gateways and the database.
type Overviews interface {
	KeepSample(ctx context.Context, state store.GatewayState, uptime time.Duration) (at time.Time, err error)
	ForgetGateway(ctx context.Context, id uuid.UUID) error
	Recount(context.Context) (counted bool, err error)
	Overview(context.Context) (store.Overview, error)
}

// Keys is what the gateway needs to manage API keys.
type Keys interface {
	CreateKey(context.Context, store.KeyRequest) (store.Key, error)
	RotateKey(ctx context.Context, id string, request store.KeyRequest, overlap time.Duration) (store.Key, error)
	RevokeKey(ctx context.Context, id string) (store.Key, error)
	Keys(context.Context, store.KeyQuery) ([]store.Key, error)
	Audit(context.Context, store.AuditQuery) ([]store.AuditEntry, error)
}

// Status is what the gateway shows of the machines in its own process.
type Status interface {
	GatewayID() uuid.UUID
	Waiting() int
	Listening() bool
	PoolStats() store.PoolStats
	GroupStats() groupcommit.Stats
	// Ready returns a readiness.NotReadyError if the database takes no commits, or nil. It knows that without asking, but
	// waits at the start until it does, or ctx ends.
	Ready(context.Context) error
	NotReady() *readiness.NotReadyError
}

// Backend is everything behind the gateway; *engine.Engine is one.
type Backend interface {
	Leases
	Sessions
	Records
	Fences
	Tables
	Rejections
	Overviews
	Keys
	Status
}

// Recorder records rejected writes. Record does no I/O.
type Recorder interface {
	Record(rejected *store.RejectedError, source, address, principal string)
}

// Config configures a gateway. The zero value of a field is its default.
type Config struct {
	// Name distinguishes the gateway from others. Default "fencegate"; 1 to 100 printable characters.
	Name string
	// BodyBytesMax bounds the body of a request, and so a value. Default 1 MiB; 1 KiB to 256 MiB.
	BodyBytesMax int64
	// BodiesBytesMax bounds the bodies of all requests that arrive or are worked on, beyond 8 KiB of each. Default
	// 128 MiB, or four bodies of BodyBytesMax where that is more; at least two.
	BodiesBytesMax int64
	// BodyTimeout is how long the body of a request may take to arrive. Default 30 s; at least 100 ms.
	BodyTimeout time.Duration
	// RequestTimeout is how long the work on a request may take after its body has arrived. The gateway allows up to a
	// sixteenth more. Default 15 s; at least 100 ms.
	RequestTimeout time.Duration
	// ShutdownTimeout is how long requests under way may take when the server shuts down, DrainDelay included. Default
	// 20 s.
	ShutdownTimeout time.Duration
	// DrainDelay is how long the gateway serves on after its shutdown has begun, while /readyz fails: load balancers need
	// it to send their requests elsewhere. Default 0; less than ShutdownTimeout.
	DrainDelay time.Duration
	// KeepAlive is how long an event stream stays silent before a comment shows that it is alive. Default 15 s; at least
	// 100 ms.
	KeepAlive time.Duration
	// WatchesMax bounds the open event streams. Default 10,000; at least 1.
	WatchesMax int
	// WaitingMax bounds the acquires that wait. Default 50,000; at least 1.
	WaitingMax int
	// Limits bound what one caller may ask for. Default: nothing is bound.
	Limits limits.Config
	// CallerLeasesMax bounds the leases of one principal that run, by the last count of the database. Default: any number;
	// at least store.LeasesListed.
	CallerLeasesMax int
	// ConnectionsMax bounds the open connections, and AddressConnectionsMax those from one address (of IPv6: from one
	// /64) that is not a trusted proxy's. Further ones are closed at once. Default: any number.
	ConnectionsMax, AddressConnectionsMax int
	// Logger gets failures and, at level debug, every request. Default: nothing is logged.
	Logger *slog.Logger
	// Auth finds the principals of requests. Default: none; then every client may do everything.
	Auth auth.Authenticator
	// SignIn has the issuers by which users of browsers sign in. Auth must accept their tokens. Default: there are none.
	SignIn *auth.Directory
	// KeysRead reports whether the API keys were read, which Auth needs. /readyz fails until then. Default: Auth needs none.
	KeysRead func() bool
	// TrustedProxies are proxies whose X-Forwarded-For is taken for a client's address, in the record of rejections and
	// in the log. Default: none.
	TrustedProxies []netip.Prefix
	// AllowedHosts are the names, addresses and networks that requests may have as Host. Names and addresses may have a
	// port; "*" is every host. Default: every host; see DefaultHosts.
	AllowedHosts []string
	// Names are prefixes: only they and the names below them are served here, and requests on others are refused. Default:
	// every name.
	Names []string
	// Certificates, if set, make Serve speak TLS.
	Certificates *Certificates
	// RefusalDelayMax bounds the delay of the answer to a write whose token was refused again and again. Default 0: no
	// delay; at most 1 min.
	RefusalDelayMax time.Duration
	// AccessLogSample logs one in so many requests at level info, and every one that is answered with 500 or more.
	// Default 0: none; 1: every one.
	AccessLogSample int
	// Terraform serves the states of Terraform and OpenTofu.
	Terraform bool
	// TerraformLockTTL is how long the lock of a state lasts if it is not released: Terraform does not renew it. Default
	// and at most 24 h, at least 100 ms. It must be the same at all gateways of a database.
	TerraformLockTTL time.Duration
	// TerraformVersionsMax is how many versions of each state are kept. Default 20; 1 to 1000.
	TerraformVersionsMax int
	// Tracing gives requests spans. Default: none.
	Tracing store.Tracing
}

// ErrInvalidConfig reports a setting outside its limits; the message names its flag.
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
	c.WaitingMax = cmp.Or(c.WaitingMax, 50_000)
	c.TerraformLockTTL = cmp.Or(c.TerraformLockTTL, store.TTLMax)
	c.TerraformVersionsMax = cmp.Or(c.TerraformVersionsMax, 20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, check := range []struct {
		ok   bool
		flag string
		got  any
		must string
	}{
		{isPrintable(c.Name, 100), "gateway-name", strconv.Quote(c.Name), "1 to 100 printable characters"},
		{c.BodyBytesMax >= 1<<10 && c.BodyBytesMax <= 256<<20, "body-bytes-max", c.BodyBytesMax, "1024 to 268435456"},
		{c.BodiesBytesMax >= 2*c.BodyBytesMax, "bodies-bytes-max", c.BodiesBytesMax,
			fmt.Sprintf("at least twice --body-bytes-max, %d", 2*c.BodyBytesMax)},
		{c.BodyTimeout >= 100*time.Millisecond, "body-timeout", c.BodyTimeout, "at least 100ms"},
		{c.RequestTimeout >= 100*time.Millisecond, "request-timeout", c.RequestTimeout, "at least 100ms"},
		{c.ShutdownTimeout >= 0, "shutdown-timeout", c.ShutdownTimeout, "0 or more"},
		{c.DrainDelay >= 0 && (c.DrainDelay == 0 || c.DrainDelay < c.ShutdownTimeout), "drain-delay", c.DrainDelay,
			fmt.Sprintf("0 or more, and less than --shutdown-timeout, %s", c.ShutdownTimeout)},
		{c.KeepAlive >= 100*time.Millisecond, "event-keep-alive", c.KeepAlive, "at least 100ms"},
		{c.AccessLogSample >= 0, "access-log-sample", c.AccessLogSample,
			"0 (none), 1 (every request) or more (one in so many)"},
		{c.RefusalDelayMax >= 0 && c.RefusalDelayMax <= time.Minute, "refusal-delay-max", c.RefusalDelayMax, "0 to 1m"},
		{c.WatchesMax >= 1, "watches-max", c.WatchesMax, "at least 1"},
		{c.WaitingMax >= 1, "waiting-max", c.WaitingMax, "at least 1"},
		{c.Limits.RequestsPerSecond >= 0 && c.Limits.RequestsPerSecond <= 1_000_000, "caller-requests-max",
			c.Limits.RequestsPerSecond, "0 to 1000000"},
		{c.Limits.Waiting >= 0, "caller-waiting-max", c.Limits.Waiting, "0 or more"},
		{c.CallerLeasesMax == 0 || c.CallerLeasesMax >= store.LeasesListed, "caller-leases-max", c.CallerLeasesMax,
			fmt.Sprintf("0, or at least %d", store.LeasesListed)},
		{c.Limits.Streams >= 0, "caller-streams-max", c.Limits.Streams, "0 or more"},
		{c.TerraformLockTTL >= store.TTLMin && c.TerraformLockTTL <= store.TTLMax &&
			c.TerraformLockTTL%time.Millisecond == 0, "terraform-lock-ttl", c.TerraformLockTTL,
			"100ms to 24h in whole milliseconds"},
		{c.TerraformVersionsMax >= 1 && c.TerraformVersionsMax <= terraform.VersionsLimit, "terraform-versions-max",
			c.TerraformVersionsMax, fmt.Sprintf("1 to %d", terraform.VersionsLimit)},
		{c.ConnectionsMax >= 0, "connections-max", c.ConnectionsMax, "0 or more"},
		{c.AddressConnectionsMax >= 0, "address-connections-max", c.AddressConnectionsMax, "0 or more"},
	} {
		if !check.ok {
			return c, fmt.Errorf("%w: --%s is %v, it must be %s", ErrInvalidConfig, check.flag, check.got, check.must)
		}
	}
	return c, nil
}

func isPrintable(name string, most int) bool {
	return utf8.RuneCountInString(name) <= most && printable.IndexUnfit(name) < 0
}

// Gateway answers the HTTP API.
type Gateway struct {
	config   Config
	backend  Backend
	states   terraform.States
	recorder Recorder
	metrics  *metrics.Metrics
	handler  http.Handler
	hosts    *hosts // nil: every one
	names    servedNames

	crossOrigin *http.CrossOriginProtection
	limits      *limits.Limits // of callers
	failures    *limits.Limits // of addresses whose requests are not authenticated
	signIns     *limits.Limits // of addresses that sign in by an issuer
	exchanges   *limits.Caller // all sign-ins together, as the issuers see them
	connections connections

	headerTimeout  time.Duration // for the header of a request
	answerTimeout  time.Duration // for a client to take an answer
	eventTimeout   time.Duration // for a client to take one event
	hangUpInterval time.Duration // between checks of the connection of a client that waits

	bodies        bodyBudget
	streams       atomic.Int64  // open event streams
	waiting       atomic.Int64  // acquires that wait
	bulkStreams   atomic.Int64  // open bulk streams
	requests      atomic.Uint64 // answered, if some of them are logged
	refusalDelays *refusalDelays
	deadline      sharedDeadline // of the work under way

	started   time.Time
	known     atomic.Pointer[knownOverview]
	history   *history
	overviews *broadcast[[]byte]
	rejected  *rejectionFeed

	leaving  atomic.Bool     // the shutdown has begun: clients should connect elsewhere
	draining context.Context // ends after the DrainDelay: no client waits any more
	drain    context.CancelFunc

	cut    context.Context // ends when the work still under way is cut off
	cutOff context.CancelFunc
}

// NewMetrics returns the metrics of a gateway, for a program of this version.
func NewMetrics(version string) *metrics.Metrics { return metrics.New(version, codeOf) }

// New returns a Gateway that serves backend. It returns ErrInvalidConfig.
func New(config Config, backend Backend, recorder Recorder, counted *metrics.Metrics) (*Gateway, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	allowed, err := parseHosts(config.AllowedHosts)
	if err != nil {
		return nil, fmt.Errorf("%w: --allowed-hosts: %w", ErrInvalidConfig, err)
	}
	names, err := parseServedNames(config.Names)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		hosts: allowed, names: names, config: config, backend: backend, recorder: recorder, metrics: counted, answerTimeout: writeTimeout,
		headerTimeout: headerTimeout, eventTimeout: eventTimeout, hangUpInterval: hangUpInterval, started: time.Now(),
		crossOrigin: http.NewCrossOriginProtection(),
	}
	g.states = terraform.States{Store: backend, VersionsMax: config.TerraformVersionsMax}
	g.limits = limits.New(config.Limits)
	g.failures = limits.New(limits.Config{RequestsPerSecond: failuresPerSecond})
	g.signIns = limits.New(limits.Config{RequestsPerSecond: signInsPerSecond})
	g.exchanges = limits.New(limits.Config{RequestsPerSecond: exchangesPerSecond}).OfAddress("")
	g.connections = connections{
		max: config.ConnectionsMax, perAddress: config.AddressConnectionsMax, strangersMax: defaultStrangersMax,
		trusted: g.trusted,
		refused: func() { counted.RateLimited(metrics.LimitConnections) },
	}
	g.bodies.max, g.bodies.stalled = config.BodiesBytesMax, bodyStalled
	g.draining, g.drain = context.WithCancel(context.Background())
	g.cut, g.cutOff = context.WithCancel(context.Background())
	g.rejected = newRejectionFeed(g.cut, backend)
	g.refusalDelays = newRefusalDelays(g.draining, config.RefusalDelayMax, &counted.RefusalDelays)
	g.deadline.within(g.cut, config.RequestTimeout)
	g.overviews = &broadcast[[]byte]{
		produce: g.publishOverviews, until: g.cut, behindMax: overviewsBehindMax, replay: true,
	}
	g.known.Store(&knownOverview{})
	g.history = &history{self: backend.GatewayID(), started: g.started, last: map[uuid.UUID]store.GatewayState{}}
	counted.WatchDatabase(g.lastDatabase)
	counted.WatchCertificate(config.Certificates.expiry)
	g.handler = g.onlyAllowedHosts(g.frequentFirst(g.routes()))
	return g, nil
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.setBodyDeadline(w, r)
	g.handler.ServeHTTP(w, r)
}
