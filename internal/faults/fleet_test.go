//go:build unix

package faults

import (
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/internal/program"
	"github.com/fencegate/fencegate/internal/ps"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/store/readiness"
)

// gateway is a process of fencegate and a client of it.
type gateway struct {
	*gatewayprocess.Process
	*lockclient.API
	transport *http.Transport
}

// startGateway runs fencegate serve before a database. Leases are remembered for longer than any load lasts.
func startGateway(t *testing.T, databaseURL string, args ...string) *gateway {
	t.Helper()
	return serve(t, append([]string{"--database-url", databaseURL}, args...)...)
}

// serve runs fencegate serve with args. When the test ends it is killed if it still runs, and its log is looked at. The
// clients of a load wait for 500 ms for an answer: a refusal that is delayed for longer would never reach them, however
// often they send the write.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	args = append([]string{"--lease-retention", "24h", "--refusal-delay-max", "100ms"}, args...)
	process, err := gatewayprocess.Start(patient(t), program.PathChecked(t), args...)
	check(t, err)
	t.Cleanup(func() {
		process.Kill()
		checkLog(t, process.Log())
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := lockclient.New(process.URL, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	check(t, err)
	return &gateway{process, client.API(), transport}
}

// checkLog fails the test for what no fault outside of the gateway excuses.
func checkLog(t *testing.T, log string) {
	t.Helper()
	// 40P01 is in the log where a client was answered 503 since its statement was in a deadlock.
	for _, sign := range []string{"DATA RACE", "panic", "level=ERROR", "40P01"} {
		if strings.Contains(log, sign) {
			t.Errorf("the gateway logged %s:\n%s", sign, log[max(0, len(log)-8<<10):])
			return
		}
	}
}

// freeze stops the gateway, and returns once it is stopped.
func (g *gateway) freeze(t *testing.T) {
	t.Helper()
	check(t, g.Signal(syscall.SIGSTOP))
	await.True(t, "the gateway is frozen", func() bool { return strings.HasPrefix(ps.State(g.PID()), "T") })
}

func (g *gateway) thaw(t *testing.T) {
	t.Helper()
	check(t, g.Signal(syscall.SIGCONT))
}

func (g *gateway) hasEnded() bool {
	select {
	case <-g.Ended():
		return true
	default:
		return false
	}
}

// awaitReady returns when the gateway says that it can serve.
func (g *gateway) awaitReady(t *testing.T) {
	t.Helper()
	ctx := patient(t)
	await.True(t, "the gateway is ready", func() bool { return g.Ready(ctx) == nil })
}

// awaitUnreachable returns when the gateway says that its database does not answer.
func (g *gateway) awaitUnreachable(t *testing.T) {
	t.Helper()
	ctx := patient(t)
	await.True(t, "/readyz has the reason "+string(readiness.Unreachable), func() bool {
		err := g.Ready(ctx)
		return answeredUnavailable(err) && problemOf(t, err).Reason == string(readiness.Unreachable)
	})
}

type atomicGateway = atomic.Pointer[gateway]

// fleet is gateways before one database. Each may be replaced while clients use it.
type fleet struct {
	databaseURL string
	args        []string
	members     []atomicGateway
	// databaseCrashes says that the test crashes the database.
	databaseCrashes bool
}

func startFleet(t *testing.T, databaseURL string, size int, args ...string) *fleet {
	t.Helper()
	f := &fleet{databaseURL: databaseURL, args: args, members: make([]atomicGateway, size)}
	for index := range f.members {
		f.members[index].Store(startGateway(t, databaseURL, args...))
	}
	return f
}

// startMigrated runs gateways before a database of their own that is migrated.
func startMigrated(t *testing.T, size int, args ...string) (*pgxpool.Pool, *fleet) {
	t.Helper()
	url := pgtest.Migrated(t)
	return connect(t, url), startFleet(t, url, size, args...)
}

func (f *fleet) at(index int) *gateway { return f.members[index%len(f.members)].Load() }

// crash kills a gateway as kill -9 does, and starts another in its place.
func (f *fleet) crash(t *testing.T, index int) {
	t.Helper()
	dead := f.at(index)
	dead.Kill()
	f.members[index%len(f.members)].Store(startGateway(t, f.databaseURL, f.args...))
	dead.transport.CloseIdleConnections()
}
