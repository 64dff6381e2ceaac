package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/readiness"
)

// TestOutages checks that /readyz, the metrics and the overview name what keeps the database from taking commits, that
// a write ends with unavailable meanwhile, and that the gateway is ready again by itself.
func TestOutages(t *testing.T) {
	o, _ := newOutages(t)
	t.Run("synchronous standby gone", o.standbyGone)
	t.Run("connections exhausted", o.connectionsExhausted)
	t.Run("read-only", o.readOnly)
	t.Run("schema gone", func(t *testing.T) {
		o.meet(t, outage{
			reason: readiness.NotMigrated,
			begin:  func(t *testing.T) { o.exec(t, "alter schema fence rename to away") },
			end:    func(t *testing.T) { o.exec(t, "alter schema away rename to fence") },
		})
	})
	t.Run("disk full", o.diskFull)
}

// TestOutagesOfServers checks the same where the server does not answer, or is another one.
func TestOutagesOfServers(t *testing.T) {
	o, network := newOutages(t)
	t.Run("server frozen", func(t *testing.T) {
		var thaw func()
		o.meet(t, outage{
			reason: readiness.Unreachable, begin: func(*testing.T) { thaw = o.cluster.Freeze() }, end: func(*testing.T) { thaw() },
		})
	})
	t.Run("packets swallowed", func(t *testing.T) { o.packetsSwallowed(t, network) })
	t.Run("server killed", func(t *testing.T) {
		o.meet(t, outage{
			reason: readiness.Unreachable, begin: func(*testing.T) { o.cluster.Kill() }, end: func(*testing.T) {
				o.cluster.Restart()
				o.db.Reset()
			},
			alerts: []string{"FencegateDatabaseChanged"},
		})
	})
	t.Run("went back", o.wentBack)
	t.Run("connection of the prober lost", o.connectionLost)
}

func newOutages(t *testing.T) (*outages, *pgtest.Network) {
	t.Helper()
	parallel(t)
	cluster := pgtest.NewCluster(t, pgtest.Setting("max_connections", "40"))
	network := cluster.Network()
	h := newOutageHarness(t, network.URL(), cluster.URL())
	alerts, err := os.ReadFile("../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	return &outages{harness: h, cluster: cluster, lease: h.acquireRepeatedly(t, "job"), alerts: string(alerts)}, network
}

// newOutageHarness is a harness with the intervals of a gateway in production, on a database that the test itself
// reaches by another URL.
func newOutageHarness(t *testing.T, databaseURL, ownURL string) *harness {
	t.Helper()
	h := newGatewayWith(t, Config{RequestTimeout: 2 * time.Second}, postgres.Config{DatabaseURL: databaseURL},
		engine.Config{DeadAfter: time.Minute})
	h.client = serve(t, conforming(t, h.gateway))
	own, err := pgxpool.New(t.Context(), ownURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	h.db = own
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.awaitReady(t)
	h.sample(t)
	h.expectOutage(t, "")
	return h
}

// acquireRepeatedly acquires a lock. On a busy machine that may take longer than the RequestTimeout.
func (h *harness) acquireRepeatedly(t *testing.T, lock string) api.Lease {
	t.Helper()
	request := encode(api.AcquireRequest{OwnerID: "w", TTLMS: &longTTL, RequestID: new("once")})
	var got answer
	await.True(t, "the lock is acquired", func() bool {
		got = h.post(t, lockPath(lock, "/acquire"), request)
		return got.status != http.StatusServiceUnavailable
	})
	return as[api.Lease](t, got, http.StatusOK)
}

func (o *outages) standbyGone(t *testing.T) {
	standby := o.cluster.Standby()
	synchronous := func(t *testing.T, names string) {
		t.Helper()
		o.exec(t, "alter system set synchronous_standby_names = '"+names+"'")
		o.exec(t, "select pg_reload_conf()")
	}
	synchronous(t, "*")
	o.awaitStandbys(t, 1, 1)
	o.awaitReady(t)
	o.meet(t, outage{
		reason: readiness.WaitsForStandby, why: "synchronous standby",
		begin: func(*testing.T) { standby.Stop() },
		meanwhile: func(t *testing.T) {
			o.awaitStandbys(t, 1, 0)
			o.sample(t) // in spite of the wait, and without an error
		},
		end:    func(*testing.T) { standby.Restart() },
		alerts: []string{"FencegateWaitsForStandby", "FencegateReplicationNotSynchronous"},
	})
	o.awaitStandbys(t, 1, 1)
	standby.Stop()
	o.awaitNotReady(t, readiness.WaitsForStandby, "")
	synchronous(t, "") // ends the wait
	o.awaitReady(t)
	o.sample(t)
	o.expectOutage(t, "")
}

// connectionsExhausted lets other sessions take all connections. The prober has one; the pool has none any more.
func (o *outages) connectionsExhausted(t *testing.T) {
	admin := connectTo(t, o.cluster)
	var others []*pgx.Conn
	take := func() bool {
		_, err := admin.Exec(t.Context(), `select pg_terminate_backend(pid, 60000) from pg_stat_activity
			where application_name = 'fencegate'`)
		for err == nil {
			var other *pgx.Conn
			if other, err = pgx.Connect(t.Context(), o.cluster.DatabaseURL("postgres")); err == nil {
				others = append(others, other)
			}
		}
		if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != "53300" {
			t.Fatal(err)
		}
		return o.notReadyReason(t) == readiness.ConnectionsExhausted
	}
	o.meet(t, outage{
		reason: readiness.ConnectionsExhausted,
		begin:  func(t *testing.T) { await.True(t, "the gateway has no connection for statements", take) },
		meanwhile: func(t *testing.T) {
			expectUnavailable(t, o.get(t, "/v1/locks/job"), api.OutcomeNotApplied)
			o.expectCounted(t, "connections_exhausted")
		},
		end: func(t *testing.T) {
			for _, other := range others {
				if err := other.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
		alerts: []string{"FencegateConnectionsExhausted"},
	})
}

// expectCounted checks that statements failed for the reason.
func (h *harness) expectCounted(t *testing.T, reason string) {
	t.Helper()
	if metrics, _ := h.scrape(t); metrics.value("fencegate_database_errors_total", "reason", reason) == 0 {
		t.Errorf("no failure for the reason %s was counted", reason)
	}
}

func (o *outages) readOnly(t *testing.T) {
	set := func(value string) func(*testing.T) {
		return func(t *testing.T) {
			o.exec(t, "alter system set default_transaction_read_only = "+value)
			o.exec(t, "select pg_reload_conf()")
		}
	}
	o.meet(t, outage{reason: readiness.ReadOnly, why: "read-only", begin: set("on"), end: set("off")})
}

// packetsSwallowed has a write under way when the network swallows packets. Its outcome is unknown, and it is applied
// once.
func (o *outages) packetsSwallowed(t *testing.T, network *pgtest.Network) {
	lease := o.acquireRepeatedly(t, "under way")
	put := func() answer { return o.put(t, lease, 1, "x") }
	unlock := o.holdFence(t, "under way")
	var underWay <-chan answer
	o.meet(t, outage{
		reason: readiness.Unreachable, why: "does not answer",
		begin: func(t *testing.T) {
			underWay = inBackground(put)
			o.awaitWaiting(t, 1)
			network.Hold()
		},
		meanwhile: func(t *testing.T) { expectUnavailable(t, <-underWay, api.OutcomeUnknown) },
		end: func(*testing.T) {
			unlock()
			network.Pass()
		},
	})
	if got := insist(t, put); got.status != http.StatusCreated && got.status != http.StatusOK {
		t.Errorf("the write that was under way, sent again, is answered %d: %s", got.status, got.body)
	}
	if version := o.count(t, "select last_version from fence.fences where resource = 'under way'"); version != 1 {
		t.Errorf("the write that was under way was applied %d times", version)
	}
}

// wentBack puts the token sequence back, as a restored copy of the database's files would. It needs a sequence that is
// far from its start, as it is after a restart of the server.
func (o *outages) wentBack(t *testing.T) {
	acquire := func() answer { return o.post(t, lockPath("after the restart", "/acquire"), `{"owner_id":"w"}`) }
	newest := as[api.Lease](t, insist(t, acquire), http.StatusOK).FencingToken
	o.meet(t, outage{
		reason: readiness.WentBack,
		begin: func(t *testing.T) {
			o.exec(t, "select setval('fence.tokens', 500)")
			o.endSessions(t)
		},
		end:    func(t *testing.T) { o.exec(t, "select fence.accept_database($1)", newest) },
		alerts: []string{"FencegateDatabaseWentBack"},
	})
}

// connectionLost freezes the database's end of a prober's connection: no answer ever comes by it, while new connections
// work.
func (o *outages) connectionLost(t *testing.T) {
	admin := connectTo(t, o.cluster)
	if _, err := admin.Exec(t.Context(), "create database lost"); err != nil {
		t.Fatal(err)
	}
	opened, err := postgres.Open(t.Context(), postgres.Config{DatabaseURL: o.cluster.DatabaseURL("lost")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	if err := opened.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := make(chan *readiness.NotReadyError, 64)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	prober := readiness.New(opened, 100*time.Millisecond)
	running.Go(func() { prober.Run(ctx, func(change *readiness.NotReadyError) { changes <- change }) })
	defer running.Wait()
	defer cancel()

	await.True(t, "the prober has probed", func() bool { return prober.NotReady() == nil })
	lost := freezeIdleProber(t, admin, "lost")
	defer func() { _ = syscall.Kill(lost, syscall.SIGCONT) }()
	for noticed := false; !noticed; { // on a slow machine it may find something else before
		change := await.Receive(t, "the prober notices that its connection is lost", changes)
		noticed = change != nil && change.Reason == readiness.Unreachable
	}
	await.True(t, "the prober has connected anew", func() bool { return prober.NotReady() == nil })
}

// freezeIdleProber freezes the backend of a prober while no statement is under way: one that is frozen in the middle of
// a statement is slow.
func freezeIdleProber(t *testing.T, admin *pgx.Conn, database string) (pid int) {
	t.Helper()
	const prober = "from pg_stat_activity where application_name = 'fencegate prober' and datname = $1"
	await.True(t, "the prober's connection is frozen while it is idle", func() bool {
		if admin.QueryRow(t.Context(), "select pid "+prober, database).Scan(&pid) != nil || pid == 0 {
			return false
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return false
		}
		var idle bool
		err := admin.QueryRow(t.Context(), "select state = 'idle' "+prober+" and pid = $2", database, pid).Scan(&idle)
		if err == nil && idle {
			return true
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		return false
	})
	return pid
}

func connectTo(t *testing.T, cluster *pgtest.Cluster) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), cluster.DatabaseURL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// notReadyReason is the reason at /readyz; empty: ready.
func (h *harness) notReadyReason(t *testing.T) readiness.Reason {
	t.Helper()
	got := h.ready(t)
	if got.status == http.StatusOK {
		return ""
	}
	return readiness.Reason(expectUnavailable(t, got, api.OutcomeNotApplied).Reason)
}

// expectOutage checks that the metrics and the overview say why the gateway is not ready; empty: it is.
func (h *harness) expectOutage(t *testing.T, reason readiness.Reason) {
	t.Helper()
	metrics, _ := h.scrape(t)
	want := []wanted{{1, "fencegate_database_up", ""}}
	if reason != "" {
		want = []wanted{{0, "fencegate_database_up", ""}}
	}
	for _, other := range readiness.Reasons {
		value := 0.0
		if other == reason {
			value = 1
		}
		want = append(want, wanted{value, "fencegate_not_ready", "reason " + string(other)})
	}
	metrics.want(t, want)
	state := api.DatabaseUnavailable
	switch reason {
	case "":
		state = api.DatabaseOK
	case readiness.ReadOnly:
		state = api.DatabaseReadOnly
	}
	// One look at a busy machine may be too slow, and then finds the database unavailable.
	await.True(t, fmt.Sprintf("the overview shows the state %s and the reason %q", state, reason), func() bool {
		d := h.overview(t, "").Database
		return d.State == state && d.Reason == string(reason) && (d.Detail == "") == (reason == "")
	})
}

// awaitStandbys returns when the metrics show whether commits wait for standbys, and for how many they can.
func (h *harness) awaitStandbys(t *testing.T, expected, standbys float64) {
	t.Helper()
	await.True(t, "the metrics show the standbys", func() bool {
		if _, err := h.gateway.sample(t.Context()); err != nil {
			return false
		}
		metrics, _ := h.scrape(t)
		return metrics.value("fencegate_database_synchronous_expected") == expected &&
			metrics.value("fencegate_database_synchronous_standbys") == standbys
	})
}

// outages are met by one gateway, one after the other.
type outages struct {
	*harness

	cluster *pgtest.Cluster
	lease   api.Lease
	written int64  // with this lease
	alerts  string // the text of alerts.yml
}

// outage is something that keeps the database from taking commits.
type outage struct {
	reason     readiness.Reason
	why        string // is in the detail of /readyz
	begin, end func(t *testing.T)
	meanwhile  func(t *testing.T) // nil: nothing more
	alerts     []string           // beside those of each outage
}

// meet lets an outage begin and end.
func (o *outages) meet(t *testing.T, met outage) {
	t.Helper()
	met.begin(t)
	o.awaitNotReady(t, met.reason, met.why)
	o.expectOutage(t, met.reason)
	o.written++
	write := func() answer { return o.put(t, o.lease, o.written, "x") }
	expectProblem(t, write(), api.CodeUnavailable)
	if met.meanwhile != nil {
		met.meanwhile(t)
	}

	met.end(t)
	o.awaitReady(t)
	o.expectOutage(t, "")
	if got := insist(t, write); got.status != http.StatusCreated && got.status != http.StatusOK {
		t.Errorf("the write that was unavailable, sent again, is answered %d: %s", got.status, got.body)
	}
	for _, name := range append(met.alerts, "FencegateNotReady", "FencegateDatabaseUnavailable") {
		if !strings.Contains(o.alerts, "- alert: "+name+"\n") {
			t.Errorf("there is no alert %s", name)
		}
	}
}
