package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fencegate/fencegate/gateway"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/heapfloor"
	"github.com/fencegate/fencegate/internal/tracing"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/readiness"
	"github.com/fencegate/fencegate/store/redislease"
)

type serveCmd struct {
	servedFlags
	logFlags
	traceFlags
	networkFlags

	Config configFlag `help:"YAML file of these flags: a key is the name of a flag without its dashes. Flags precede the environment, which precedes the file." env:"FENCEGATE_CONFIG" type:"path" placeholder:"PATH"`

	Listen          string        `help:"Address to serve on; port 0 takes a free one." env:"FENCEGATE_LISTEN" default:"127.0.0.1:8080"`
	DebugListen     string        `help:"Address to serve profiles of this process on (pprof), without authentication: a loopback address, unless --insecure-no-auth is set. Default: none." env:"FENCEGATE_DEBUG_LISTEN" placeholder:"ADDRESS"`
	ReadyFile       string        `help:"File that receives the base URL once the gateway serves, and is removed when it ends." env:"FENCEGATE_READY_FILE" type:"path" placeholder:"PATH"`
	DatabaseTimeout time.Duration `help:"How long to wait at the start for a database that can't be reached. 0: as long as it takes. Until then the gateway is not ready, and says why." env:"FENCEGATE_DATABASE_TIMEOUT" default:"0s"`
	Migrate         bool          `help:"Migrate the database's schema to this program's at the start." env:"FENCEGATE_MIGRATE" default:"true" negatable:""`

	Cluster bool `help:"Serve the names of all nodes of the cluster whose coordinator the database is; see docs/cluster.md." env:"FENCEGATE_CLUSTER"`

	Leases         store.Provider `help:"What keeps the leases on names whose policy does not say: postgres, redis, or redlock (a majority of independent Redis servers). Tokens and fences are always PostgreSQL's." enum:"postgres,redis,redlock" env:"FENCEGATE_LEASES" default:"postgres"`
	RedisURL       string         `help:"Redis that keeps leases: redis://user:password@host:port/db, or rediss:// for TLS; Sentinels and a Cluster see docs/other-locks.md." env:"FENCEGATE_REDIS_URL" placeholder:"URL"`
	RedlockURLs    []string       `help:"Independent Redis servers of which a majority keeps leases: an odd number from 3 to 15." name:"redlock-urls" env:"FENCEGATE_REDLOCK_URLS" placeholder:"URL,…"`
	RedisTimeout   time.Duration  `help:"Time for one call of a Redis server; 0 is 1s, and 50ms for redlock." env:"FENCEGATE_REDIS_TIMEOUT" default:"0"`
	RedlockTTLMax  time.Duration  `help:"Longest TTL of a lease in redlock. A server that was started does not vote for so long." env:"FENCEGATE_REDLOCK_TTL_MAX" default:"1m"`
	RedisKeyPrefix string         `help:"What stands before the name of a lock in its key in Redis." env:"FENCEGATE_REDIS_KEY_PREFIX"`

	AccessLogSample int `help:"Log one in so many requests, and every one that fails for the gateway (status 500 and more). 1: every request; 0: none." env:"FENCEGATE_ACCESS_LOG_SAMPLE" default:"0"`

	historyFlags

	PrometheusURL string `help:"Prometheus whose firing alerts the overview shows." name:"prometheus-url" env:"FENCEGATE_PROMETHEUS_URL" placeholder:"URL"`

	ListenURL string `help:"Direct URL of the database, where --database-url leads through a pooler in transaction mode, such as PgBouncer: for notifications, migrations and probes." name:"listen-url" env:"FENCEGATE_LISTEN_URL" placeholder:"URL"`

	DatabaseConnectionsMax int           `help:"Connections to the database, at most." env:"FENCEGATE_DATABASE_CONNECTIONS_MAX" default:"16"`
	StatementTimeout       time.Duration `help:"Time for one statement in the database, waits for locks included." env:"FENCEGATE_STATEMENT_TIMEOUT" default:"10s"`
	LockTimeout            time.Duration `help:"Time that a statement waits for a lock which another session of the database holds; queued writes wait up to --statement-timeout." env:"FENCEGATE_LOCK_TIMEOUT" default:"1s"`

	RefusalsRememberedMax int `help:"Resources of which this gateway remembers rejected tokens, to refuse them without the database, at most; 0: none." env:"FENCEGATE_REFUSALS_REMEMBERED_MAX" default:"100000"`

	RefusalDelayMax time.Duration `help:"How long the answer to a write may be delayed if its token was rejected again and again; 0: no delay." env:"FENCEGATE_REFUSAL_DELAY_MAX" default:"1s"`

	WriteBatchesMax    int   `help:"Batches of writes that are committed at the same time, each on a connection, at most; 0 is half of the connections." env:"FENCEGATE_WRITE_BATCHES_MAX" default:"0"`
	WriteQueueMax      int   `help:"Writes that wait for a batch, at most; beyond that they are refused as unavailable. A 16th of it may be for one resource, and a quarter for fences that another database session has locked." env:"FENCEGATE_WRITE_QUEUE_MAX" default:"16384"`
	WriteQueueBytesMax int64 `help:"Bytes of the writes that wait for a batch, at most." env:"FENCEGATE_WRITE_QUEUE_BYTES_MAX" default:"67108864"`

	BodyBytesMax    int64         `help:"Size of a request's body, and so of a value, at most." env:"FENCEGATE_BODY_BYTES_MAX" default:"1048576"`
	BodiesBytesMax  int64         `help:"Bytes of the bodies of all requests that arrive or are worked on, beyond 8 KiB of each, at most; 0 is 128 MiB, or four bodies if that is more. One caller may use half. Once they are used up, stalled bodies are cut off, and new ones are refused." env:"FENCEGATE_BODIES_BYTES_MAX" default:"0"`
	BodyTimeout     time.Duration `help:"Time for a request's body to arrive." env:"FENCEGATE_BODY_TIMEOUT" default:"30s"`
	RequestTimeout  time.Duration `help:"Time for the work on a request." env:"FENCEGATE_REQUEST_TIMEOUT" default:"15s"`
	ShutdownTimeout time.Duration `help:"Time that requests under way have to finish after SIGTERM or SIGINT, --drain-delay included." env:"FENCEGATE_SHUTDOWN_TIMEOUT" default:"20s"`
	ReadOnly        bool          `help:"Answer reads, and refuse what would change something: 503, reason gateway_read_only. The schema is not migrated." env:"FENCEGATE_READ_ONLY"`
	DrainDelay      time.Duration `help:"How long after SIGTERM or SIGINT requests are still taken while /readyz fails, for load balancers to notice." env:"FENCEGATE_DRAIN_DELAY" default:"0"`

	Auth       []string `help:"Credentials that requests must have, one of: keys (API keys, see \"fencegate keys\"), tokens (JWT of issuers that --access-file names), certificates (of clients, by --client-ca and --access-file). Without it, every client may do everything." enum:"keys,tokens,certificates" env:"FENCEGATE_AUTH" placeholder:"KIND,…"`
	AccessFile string   `help:"YAML file that maps tokens and certificates to principals and grants; see docs/security.md. It is read again when it changes." env:"FENCEGATE_ACCESS_FILE" type:"path" placeholder:"PATH"`

	TrustedProxies []proxyFlag `help:"Addresses and networks (10.0.0.0/8) of proxies whose X-Forwarded-For is trusted to name the client, in rejections and in the log." env:"FENCEGATE_TRUSTED_PROXIES" placeholder:"NETWORK,…"`

	GatewayName string `help:"Name of this gateway among others. Default: the address that it serves on." env:"FENCEGATE_GATEWAY_NAME"`

	EventKeepAlive time.Duration `help:"Time after which an idle event stream sends a keep-alive comment." env:"FENCEGATE_EVENT_KEEP_ALIVE" default:"15s"`
	WatchesMax     int           `help:"Event streams that are open at the same time, at most." env:"FENCEGATE_WATCHES_MAX" default:"10000"`

	WaitingMax            int `help:"Acquires that wait at the same time, at most; 0: 50000, or as many as half of GOMEMLIMIT holds at 40 KiB each." env:"FENCEGATE_WAITING_MAX" default:"0"`
	CallerRequestsMax     int `help:"Requests a second of one principal, or without authentication of one address, at most; each write of a bulk request counts. 0: any number." env:"FENCEGATE_CALLER_REQUESTS_MAX" default:"100000"`
	CallerWaitingMax      int `help:"Acquires of one principal or address that wait, at most; 0: any number." env:"FENCEGATE_CALLER_WAITING_MAX" default:"10000"`
	CallerLeasesMax       int `help:"Leases and sessions of one principal, at most, on all gateways, by the last count: 1000 or more; 0: any number." env:"FENCEGATE_CALLER_LEASES_MAX" default:"1000000"`
	CallerStreamsMax      int `help:"Event streams of one principal or address, at most; 0: any number." env:"FENCEGATE_CALLER_STREAMS_MAX" default:"5000"`
	ConnectionsMax        int `help:"Connections of clients, at most; further ones are closed at once. 0: any number." env:"FENCEGATE_CONNECTIONS_MAX" default:"20000"`
	AddressConnectionsMax int `help:"Connections from one address, at most, unless it is in --trusted-proxies; 0: any number." env:"FENCEGATE_ADDRESS_CONNECTIONS_MAX" default:"10000"`

	Terraform              bool          `help:"Serve the states of Terraform and OpenTofu (backend \"http\") at /v1/terraform/NAME; see docs/terraform.md." env:"FENCEGATE_TERRAFORM"`
	TerraformLockTTL       time.Duration `help:"How long the lock of a state lasts if it is not released. Terraform does not renew it. The same at all gateways of a database." name:"terraform-lock-ttl" env:"FENCEGATE_TERRAFORM_LOCK_TTL" default:"24h"`
	TerraformStateBytesMax int64         `help:"Size of a state, at most." name:"terraform-state-bytes-max" env:"FENCEGATE_TERRAFORM_STATE_BYTES_MAX" default:"67108864"`
	TerraformVersionsMax   int           `help:"Versions of each state that are kept." env:"FENCEGATE_TERRAFORM_VERSIONS_MAX" default:"20"`

	SweepInterval  time.Duration `help:"Time between sweeps of expired leases; nothing waits for a sweep." env:"FENCEGATE_SWEEP_INTERVAL" default:"1s"`
	LeaseRetention time.Duration `help:"How long ended leases are remembered, for late releases and retried acquires." env:"FENCEGATE_LEASE_RETENTION" default:"10m"`
	RejectionAge   time.Duration `help:"How long rejections are kept." env:"FENCEGATE_REJECTION_AGE" default:"168h"`
	RejectionsMax  int64         `help:"How many rejections are kept." env:"FENCEGATE_REJECTIONS_MAX" default:"100000"`

	AuditRetention    time.Duration `help:"How long the audit log is kept, if that is longer than the table fence.sweeps says." env:"FENCEGATE_AUDIT_RETENTION" default:"9600h"`
	AuditAnonymousMax int64         `help:"Actions of callers without a credential are kept among so many newest entries of the audit log, if that is more than the table fence.sweeps says." env:"FENCEGATE_AUDIT_ANONYMOUS_MAX" default:"100000"`
}

// Help is shown by --help.
func (serveCmd) Help() string {
	return "Serves the HTTP API until SIGTERM or SIGINT. Then it stops being ready (--drain-delay), takes no new " +
		"requests, ends all waits, finishes what is under way (--shutdown-timeout) and exits 0; " +
		"a second signal ends it at once. Without --database-url it runs a private, durable PostgreSQL from the binaries " +
		"on this machine."
}

// heapGrowth is how much memory beside what is in use may wait for the garbage collector. docs/operations.md states it.
const heapGrowth = 64 << 20

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, streams streams) error {
	return c.run(ctx, streams.err, func(baseURL string, _ *database) {
		_, _ = fmt.Fprintf(streams.out, "fencegate %s serves on %s\n", programVersion(), baseURL)
	})
}

// run serves until ctx ends. It calls announce once clients can connect.
func (c *serveCmd) run(
	ctx context.Context, log io.Writer, announce func(baseURL string, db *database),
) (err error) {
	logger := c.logger(log)
	traces, err := c.traceFlags.start(ctx, logger)
	if err != nil {
		return err
	}
	defer flush(traces, logger)
	certificates, err := c.certificates()
	if err != nil {
		return err
	}
	directory, err := c.directory(logger)
	if err != nil {
		return err
	}
	if err := c.tryListen(ctx); err != nil {
		return err
	}
	defer heapfloor.Keep(heapGrowth)()
	stopProfiles, err := c.serveProfiles(ctx, logger)
	if err != nil {
		return err
	}
	defer stopProfiles()
	db, err := c.openDatabase(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := checkDatabaseURL("--listen-url", c.ListenURL); err != nil {
		return err
	}
	return c.endInTime(ctx, func() error {
		return c.serveOn(ctx, db, certificates, directory, c.of(traces), gateway.NewMetrics(programVersion()).WatchTracing(traces.Dropped), logger,
			announce)
	})
}

// serveOn puts a gateway before the database and serves until ctx ends.
func (c *serveCmd) serveOn(
	ctx context.Context, db *database, certificates *gateway.Certificates, directory *auth.Directory, tracing store.Tracing,
	metrics *metrics.Metrics, logger *slog.Logger, announce func(string, *database),
) error {
	st, err := postgres.Open(ctx, postgres.Config{
		DatabaseURL: db.url, ListenURL: c.ListenURL, ConnectionsMax: c.DatabaseConnectionsMax, StatementTimeout: c.StatementTimeout,
		LockTimeout: c.LockTimeout, Tracing: tracing, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer st.Close()
	providers, err := c.redisProviders(st)
	if err != nil {
		return err
	}
	defer providers.close()
	service, err := engine.New(st, c.engineConfig(providers.all()))
	if err != nil {
		return err
	}
	nodes := c.openCluster(service, db, tracing, metrics, logger)
	defer nodes.close()
	metrics.Watch(service)
	metrics.WatchRedis(providers...)
	recorder := postgres.NewRecorder(st)
	metrics.WatchRecorder(recorder)
	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // of which Serve has seen to
	recorded, err := c.recorder(logger)
	if err != nil {
		return err
	}
	defer recorded.Close()
	config := c.gatewayConfig(listener.Addr(), service, directory, certificates, logger, tracing)
	config.Calls = recorded
	gw, err := gateway.New(config, nodes.Service, recorder, metrics)
	if err != nil {
		return err
	}
	sweeper, err := c.sweeper(st)
	if err != nil {
		return err
	}
	metrics.WatchSweeper(sweeper.Stats)
	stop := func() {}
	defer func() { stop() }()
	start := func(ctx context.Context) error {
		err := c.prepare(ctx, st, logger)
		if err == nil {
			err = nodes.start(ctx)
		}
		if err == nil {
			stop = c.runBackground(ctx, service, nodes, recorder, sweeper, directory, gw, metrics, logger)
		}
		return err
	}
	shutdown := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { shutdown <- time.Now() })
	if err := c.serve(ctx, gw, listener, db, start, logger, announce); err != nil {
		nodes.cutOff() // the time to finish requests is over
		return err
	}
	// What no client waits for any more has the rest of the time.
	time.AfterFunc(time.Until((<-shutdown).Add(c.ShutdownTimeout)), nodes.cutOff)
	return nil
}

// runBackground runs what a gateway does beside answering requests, until the returned function is called.
func (c *serveCmd) runBackground(
	ctx context.Context, service *engine.Engine, nodes nodes, recorder *postgres.Recorder, sweeper *postgres.Sweeper,
	directory *auth.Directory, gw *gateway.Gateway, metrics *metrics.Metrics, logger *slog.Logger,
) (stop func()) {
	return background(ctx, append(c.followAuth(service, directory, metrics, logger), gw.RunAlerts,
		func(ctx context.Context) {
			service.Run(ctx, func(err error) { logger.Warn("notifications lost; waiters are polled", "error", err) })
		},
		func(ctx context.Context) {
			service.RunProber(ctx, func(now *readiness.NotReadyError) { logReadiness(logger, now) })
		},
		func(ctx context.Context) { nodes.follow(ctx, logger) },
		func(ctx context.Context) {
			recorder.Run(ctx, func(err error) { logger.Warn("rejections not recorded yet", "error", err) })
		},
		func(ctx context.Context) {
			sweeper.Run(ctx, metrics.Swept, func(err error) { logger.Warn("sweep failed", "error", err) })
		},
		func(ctx context.Context) {
			gw.RunAuditor(ctx, func(err error) { logger.Warn("audit log not written or read", "error", err) })
		},
		func(ctx context.Context) {
			gw.RunSampler(ctx, func(err error) { logger.Warn("sample not kept yet", "error", err) })
		})...)
}

func logReadiness(logger *slog.Logger, notReady *readiness.NotReadyError) {
	if notReady == nil {
		logger.Info("ready")
		return
	}
	logger.Warn("not ready", "reason", string(notReady.Reason), "error", notReady)
}

// limits bound what one caller may ask for.
func (c *serveCmd) limits() limits.Config {
	return limits.Config{RequestsPerSecond: c.CallerRequestsMax, Waiting: c.CallerWaitingMax, Streams: c.CallerStreamsMax}
}

func (c *serveCmd) sweeper(st *postgres.Store) (*postgres.Sweeper, error) {
	return postgres.NewSweeper(st, postgres.SweeperConfig{
		Interval: c.SweepInterval, LeaseRetention: c.LeaseRetention, RejectionAge: c.RejectionAge,
		RejectionsMax: c.RejectionsMax, AuditRetention: c.AuditRetention,
		AuditAnonymousMax: c.AuditAnonymousMax,
	})
}

// serve answers requests until ctx ends, the private PostgreSQL does, or start fails. Until start has returned, which
// waits for the database, the gateway is not ready, and says why.
func (c *serveCmd) serve(
	ctx context.Context, gw *gateway.Gateway, listener net.Listener, db *database,
	start func(context.Context) error, logger *slog.Logger, announce func(string, *database),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-db.ended():
			cancel(fmt.Errorf("the private PostgreSQL ended: %w", db.cluster.Err()))
		case <-ctx.Done():
		}
	}()

	baseURL := c.scheme() + "://" + listener.Addr().String()
	c.warnIfOpen(listener.Addr(), c.authenticated(), logger)
	var starting sync.WaitGroup
	removeReadyFile := func() {}
	starting.Go(func() {
		err := start(ctx)
		if err == nil {
			removeReadyFile, err = c.writeReadyFile(baseURL)
		}
		if err != nil {
			cancel(err)
			return
		}
		announce(baseURL, db)
	})
	err := gw.Serve(ctx, listener)
	starting.Wait()
	removeReadyFile()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	logger.Info("stopped serving")
	return err
}

// redisProviders keep leases outside PostgreSQL.
type redisProviders []*redislease.Leases

// redisProviders returns the providers whose servers the flags name. They connect when they are first used.
func (c *serveCmd) redisProviders(st *postgres.Store) (all redisProviders, err error) {
	for _, config := range []redislease.Config{
		{Provider: store.ProviderRedis, URLs: notEmpty(c.RedisURL)},
		{Provider: store.ProviderRedlock, URLs: c.RedlockURLs, TTLMax: c.RedlockTTLMax},
	} {
		if len(config.URLs) == 0 {
			continue
		}
		config.Timeout, config.KeyPrefix = c.RedisTimeout, c.RedisKeyPrefix
		provider, err := redislease.New(st, config)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, provider)
	}
	return all, nil
}

func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func (p redisProviders) all() []engine.LeaseProvider {
	all := make([]engine.LeaseProvider, len(p))
	for i, provider := range p {
		all[i] = provider
	}
	return all
}

// close ends the connections. Nothing may use the providers any more.
func (p redisProviders) close() {
	for _, provider := range p {
		provider.Close()
	}
}

// endTimeout is how long the gateway may take, after the time of its requests, to end what has no client: the last
// records of rejections, connections to a database that does not answer.
const endTimeout = time.Second

// endInTime does work that should end with ctx. It returns an error, and leaves the work to the end of the process, if
// that takes longer than the shutdown may.
func (c *serveCmd) endInTime(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(c.ShutdownTimeout + endTimeout):
		return fmt.Errorf("the database did not answer until %s after --shutdown-timeout", endTimeout)
	}
}

// background runs tasks until the returned function is called, which waits for their end. They outlive ctx: what was
// noted while the last requests ended is still to be written.
func background(ctx context.Context, tasks ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// traceFlushTimeout is how long a gateway that ends tries to deliver its last spans.
const traceFlushTimeout = 3 * time.Second

// traceFlags say what is traced, and where spans are sent.
type traceFlags struct {
	TraceEndpoint    string  `help:"Collector of OpenTelemetry to send spans to, by OTLP over HTTP: http://127.0.0.1:4318. Default: OTEL_EXPORTER_OTLP_ENDPOINT, and without that no tracing." env:"FENCEGATE_TRACE_ENDPOINT" placeholder:"URL"`
	TraceSampleRatio float64 `help:"Share of the traces begun by this gateway that is kept, 0 to 1. The client decides for traces that it has begun." env:"FENCEGATE_TRACE_SAMPLE_RATIO" default:"1"`
	TraceNames       bool    `help:"Show the names of locks, resources and keys in spans, as attributes." env:"FENCEGATE_TRACE_NAMES" default:"true" negatable:""`
}

// start returns nil where nothing is to be traced.
func (f traceFlags) start(ctx context.Context, logger *slog.Logger) (*tracing.Tracing, error) {
	return tracing.New(ctx, tracing.Config{
		Endpoint: f.TraceEndpoint, SampleRatio: f.TraceSampleRatio, Version: programVersion(),
		OnError: func(err error) { logger.Warn("spans not delivered", "error", err) },
	})
}

// of is what the store and the gateway need to know.
func (f traceFlags) of(traces *tracing.Tracing) store.Tracing {
	return store.Tracing{Provider: traces.Provider(), LeaveOutNames: !f.TraceNames}
}

// flush delivers the last spans, if that can be done soon.
func flush(traces *tracing.Tracing, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), traceFlushTimeout)
	defer cancel()
	if left, err := traces.Shutdown(ctx); err != nil {
		logger.Warn("the last spans are not delivered", "spans", left, "error", err)
	}
}
