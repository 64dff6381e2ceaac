// Package gateway is the HTTP API of fencegate, put together: its settings, its routes and who may call them, and the
// server that shuts down without dropping requests that it took. It decides nothing: every verdict comes from the
// store, and any number of gateways may serve one database.
//
// What all endpoints have in common is in package endpoint. Each part of the API is a package, with its routes, handlers
// and lists, and the few methods of the store that it needs: locks, writes, events, rejections, admin, signin, terraform.
// This package has what is of the gateway itself: the overview of all gateways, health, metrics and the dashboard.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/admin"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/callfile"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/locks"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/gateway/rejections"
	"github.com/fencegate/fencegate/gateway/signin"
	"github.com/fencegate/fencegate/gateway/terraform"
	"github.com/fencegate/fencegate/gateway/writes"
	"github.com/fencegate/fencegate/internal/printable"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/groupcommit"
	"github.com/fencegate/fencegate/store/readiness"
)

// Service is what the gateway needs of the store; *engine.Engine is one.
type Service interface {
	locks.Service
	writes.Service
	rejections.Service
	admin.Service
	terraform.Service

	GatewayID() uuid.UUID
	Waiting() int
	Listening() bool
	GroupStats() groupcommit.Stats
	// Ready returns a readiness.NotReadyError if the database takes no commits, or nil. It knows that without asking, but
	// waits at the start until it does, or ctx ends.
	Ready(context.Context) error
	NotReady() *readiness.NotReadyError

	PoolStats() store.PoolStats
	KeepSample(ctx context.Context, state store.GatewayState, uptime time.Duration) (at time.Time, err error)
	ForgetGateway(ctx context.Context, id uuid.UUID) error
	Recount(context.Context) (counted bool, err error)
	Overview(context.Context) (store.Overview, error)
	NoteRefusals(context.Context, []store.Refusal) error
	AuditHead(context.Context) (seal int64, hash string, err error)
}

// Config configures a gateway. The zero value of a field is its default.
type Config struct {
	// Name distinguishes the gateway from others. Default "fencegate"; 1 to 100 printable characters.
	Name string
	// BodyBytesMax bounds the body of a request, and so a value. Default 1 MiB; 1 KiB to 256 MiB.
	BodyBytesMax int64
	// BodiesBytesMax bounds the bodies of all requests that arrive or are worked on, beyond 8 KiB of each. Default
	// 128 MiB, or four bodies of BodyBytesMax where that is more, or with Terraform two states of
	// TerraformStateBytesMax; at least half of that.
	BodiesBytesMax int64
	// BodyTimeout is how long the body of a request may take to arrive. Default 30 s; at least 100 ms.
	BodyTimeout time.Duration
	// RequestTimeout is how long the work on a request may take after its body has arrived. The gateway allows up to a
	// sixteenth more. Default 15 s; at least 100 ms.
	RequestTimeout time.Duration
	// ShutdownTimeout is how long requests under way may take when the server shuts down, DrainDelay included. Default
	// 20 s.
	ShutdownTimeout time.Duration
	// ReadOnly refuses requests that would change something: 503 with the reason gateway_read_only. Default: it takes them.
	ReadOnly bool
	// DrainDelay is how long the gateway serves on after its shutdown or a drain has begun, while /readyz fails: load
	// balancers need it to send their requests elsewhere. Default 0; less than ShutdownTimeout.
	DrainDelay time.Duration
	// KeepAlive is how long an event stream stays silent before a comment shows that it is alive. Default 15 s; at least
	// 100 ms.
	KeepAlive time.Duration
	// WatchesMax bounds the open event streams. Default 10,000; at least 1.
	WatchesMax int
	// WaitingMax bounds the acquires that wait; at least 1. Default: 50,000, or as many as half of Go's memory limit
	// (GOMEMLIMIT) holds.
	WaitingMax int
	// PrometheusURL names a Prometheus whose firing alerts the overview shows, with a user and a password where it needs
	// them. Default: none.
	PrometheusURL string
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
	// Certificates, if set, make Serve speak TLS.
	Certificates *Certificates
	// RefusalDelayMax bounds the delay of the answer to a write whose token was refused again and again. Default 0: no
	// delay; at most 1 min.
	RefusalDelayMax time.Duration
	// AccessLogSample logs one in so many requests at level info, and every one that is answered with 500 or more.
	// Default 0: none; 1: every one.
	AccessLogSample int
	// Calls, if set, records what clients ask for and are answered. It is the caller's to close.
	Calls *callfile.Recorder
	// Terraform serves the states of Terraform and OpenTofu.
	Terraform bool
	// TerraformLockTTL is how long the lock of a state lasts if it is not released: Terraform does not renew it. Default
	// and at most 24 h, at least 100 ms. It must be the same at all gateways of a database.
	TerraformLockTTL time.Duration
	// TerraformStateBytesMax bounds a state. Default 64 MiB; 1 KiB to 256 MiB.
	TerraformStateBytesMax int64
	// TerraformVersionsMax is how many versions of each state are kept. Default 20; 1 to 1000.
	TerraformVersionsMax int
	// Tracing gives requests spans. Default: none.
	Tracing store.Tracing
}

// waiterBytes is what an acquire that waits adds to the memory of the process, with the garbage of its arrival, rounded
// up: docs/sizing.md.
const waiterBytes = 40 << 10

// waitingWithin returns how many acquires may wait by default, with a memory limit in bytes.
func waitingWithin(limit int64) int { return int(max(1, min(50_000, limit/2/waiterBytes))) }

// ErrInvalidConfig reports a setting outside its limits; the message names its flag.
var ErrInvalidConfig = errors.New("invalid configuration")

func (c Config) withDefaults() (Config, error) {
	c.Name = cmp.Or(c.Name, "fencegate")
	c.BodyBytesMax = cmp.Or(c.BodyBytesMax, 1<<20)
	c.TerraformStateBytesMax = cmp.Or(c.TerraformStateBytesMax, 64<<20)
	bodiesBytesMin := 2 * c.BodyBytesMax
	if c.Terraform {
		bodiesBytesMin = max(bodiesBytesMin, c.TerraformStateBytesMax)
	}
	c.BodiesBytesMax = cmp.Or(c.BodiesBytesMax, max(128<<20, 2*bodiesBytesMin))
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 30*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 15*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 20*time.Second)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.WatchesMax = cmp.Or(c.WatchesMax, 10_000)
	c.WaitingMax = cmp.Or(c.WaitingMax, waitingWithin(debug.SetMemoryLimit(-1)))
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
		{c.BodiesBytesMax >= bodiesBytesMin, "bodies-bytes-max", c.BodiesBytesMax,
			fmt.Sprintf("at least %d, for two bodies of --body-bytes-max, or a state of --terraform-state-bytes-max",
				bodiesBytesMin)},
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
		{c.PrometheusURL == "" || isHTTP(c.PrometheusURL), "prometheus-url", "not a URL", "http://host:port or https://host:port"},
		{c.Limits.RequestsPerSecond >= 0 && c.Limits.RequestsPerSecond <= 1_000_000, "caller-requests-max",
			c.Limits.RequestsPerSecond, "0 to 1000000"},
		{c.Limits.Waiting >= 0, "caller-waiting-max", c.Limits.Waiting, "0 or more"},
		{c.CallerLeasesMax == 0 || c.CallerLeasesMax >= store.LeasesListed, "caller-leases-max", c.CallerLeasesMax,
			fmt.Sprintf("0, or at least %d", store.LeasesListed)},
		{c.Limits.Streams >= 0, "caller-streams-max", c.Limits.Streams, "0 or more"},
		{c.TerraformLockTTL >= store.TTLMin && c.TerraformLockTTL <= store.TTLMax &&
			c.TerraformLockTTL%time.Millisecond == 0, "terraform-lock-ttl", c.TerraformLockTTL,
			"100ms to 24h in whole milliseconds"},
		{c.TerraformStateBytesMax >= 1<<10 && c.TerraformStateBytesMax <= 256<<20, "terraform-state-bytes-max",
			c.TerraformStateBytesMax, "1024 to 268435456"},
		{c.TerraformVersionsMax >= 1 && c.TerraformVersionsMax <= store.PageMax, "terraform-versions-max",
			c.TerraformVersionsMax, fmt.Sprintf("1 to %d", store.PageMax)},
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
	*endpoint.Server

	config  Config
	service Service
	handler http.Handler
	hosts   *hosts // nil: every one

	locks      *locks.Endpoints
	writes     *writes.Endpoints
	rejections *rejections.Endpoints
	admin      *admin.Endpoints
	signIn     *signin.Endpoints
	terraform  *terraform.Endpoints

	headerTimeout time.Duration // for the header of a request

	started   time.Time
	known     atomic.Pointer[knownOverview]
	alerts    atomic.Pointer[api.OverviewAlerts] // nil: none were read
	history   *history
	auditHead string // the last one in the log
	overviews *endpoint.Broadcast[[]byte]
}

// NewMetrics returns the metrics of a gateway, for a program of this version.
func NewMetrics(version string) *metrics.Metrics { return metrics.New(version, endpoint.CodeOf) }

// New returns a Gateway that serves a store. It returns ErrInvalidConfig.
func New(
	config Config, service Service, recorder writes.Recorder, counted *metrics.Metrics,
) (*Gateway, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if config.Calls != nil {
		service = recorded{service, config.Calls}
	}
	allowed, err := parseHosts(config.AllowedHosts)
	if err != nil {
		return nil, fmt.Errorf("%w: --allowed-hosts: %w", ErrInvalidConfig, err)
	}
	server := endpoint.NewServer(endpoint.Config{
		Auth: config.Auth, Logger: config.Logger, Rules: accessRules,
		TrustedProxies: config.TrustedProxies, Limits: config.Limits, BodyBytesMax: config.BodyBytesMax,
		BodiesBytesMax: config.BodiesBytesMax, BodyTimeout: config.BodyTimeout, RequestTimeout: config.RequestTimeout,
		ReadOnly: config.ReadOnly, DrainDelay: config.DrainDelay, KeepAlive: config.KeepAlive, RefusalDelayMax: config.RefusalDelayMax, WatchesMax: config.WatchesMax,
		ConnectionsMax: config.ConnectionsMax, AddressConnectionsMax: config.AddressConnectionsMax,
		AccessLogSample: config.AccessLogSample, Tracing: config.Tracing,
	}, counted)
	g := &Gateway{
		Server: server, config: config, service: service, hosts: allowed,
		headerTimeout: headerTimeout, started: time.Now(),
		rejections: rejections.New(server, service), admin: admin.New(server, service),
		signIn: signin.New(server, config.SignIn), writes: writes.New(server, service, recorder),
	}
	g.locks = locks.New(server, service, locks.Config{
		WaitingMax: config.WaitingMax, CallerLeasesMax: config.CallerLeasesMax, LeasesOf: g.leasesOf,
	})
	g.terraform = terraform.New(server, g.locks, g.writes, service, terraform.Config{
		Enabled: config.Terraform, LockTTL: config.TerraformLockTTL, StateBytesMax: config.TerraformStateBytesMax,
		VersionsMax: config.TerraformVersionsMax,
	})
	g.overviews = &endpoint.Broadcast[[]byte]{
		Produce: g.publishOverviews, Until: g.Cut, BehindMax: overviewsBehindMax, Replay: true,
	}
	g.known.Store(&knownOverview{})
	g.history = &history{started: g.started, last: map[uuid.UUID]store.GatewayState{}}
	counted.WatchDatabase(g.lastDatabase)
	counted.WatchDraining(server.Leaving.Load)
	counted.WatchCertificate(config.Certificates.expiry)
	g.handler = g.onlyAllowedHosts(g.frequentFirst(g.routes()))
	return g, nil
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.SetBodyDeadline(w, r)
	g.handler.ServeHTTP(w, r)
}
