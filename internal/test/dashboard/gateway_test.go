//go:build unix

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

const (
	// longTTL outlasts every test.
	longTTL = int64(5*time.Hour+30*time.Minute) / int64(time.Millisecond)
	// longWait is the greatest wait_ms.
	longWait = int64(10 * time.Minute / time.Millisecond)
)

// calls are those of a client: of locks and records, and of administrators.
type calls struct {
	*lockclient.API
	*admin.Client
}

// gateway is a process of fencegate that keeps its address when it is restarted, and a client of it.
type gateway struct {
	calls

	url, address, database string
	flags                  []string
	process                *testgateway.Process
}

// startGateway serves a new database until the test ends.
func startGateway(t *testing.T) *gateway { return startGatewayOn(t, postgres.Migrated(t)) }

// startGatewayOn serves a database until the test ends.
func startGatewayOn(t *testing.T, database string, flags ...string) *gateway {
	t.Helper()
	g := &gateway{database: database, address: network.FreeAddress(t), flags: flags}
	g.url = "http://" + g.address
	g.start(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	g.calls = g.client(t, lockclient.WithHTTPClient(&http.Client{Transport: transport}))
	return g
}

func (g *gateway) client(t *testing.T, options ...lockclient.Option) calls {
	t.Helper()
	client, err := lockclient.New(g.url, options...)
	check(t, err)
	t.Cleanup(client.Close)
	return calls{client.API(), admin.New(client)}
}

// start runs the process until the test ends, and then checks its log.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	path := process.BuildChecked(t)
	flags := append([]string{"--listen", g.address, "--database-url", g.database}, g.flags...)
	process, err := testgateway.Run(t.Context(), path, flags...)
	check(t, err)
	g.process = process
	t.Cleanup(func() {
		process.Kill()
		testgateway.CheckLog(t, process.Log())
	})
}

// sql runs statements in the gateway's database.
func (g *gateway) sql(t *testing.T, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), g.database)
	check(t, err)
	defer func() { check(t, conn.Close(t.Context())) }()
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		check(t, err)
	}
}

// hold acquires a lock for longer than the test lasts.
func (g *gateway) hold(t *testing.T, lock, owner string) api.Lease {
	t.Helper()
	lease, err := g.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: owner, TTLMS: new(longTTL)})
	check(t, err)
	return lease
}

func (g *gateway) release(t *testing.T, lease api.Lease) {
	t.Helper()
	check(t, g.Release(t.Context(), lease.Lock, releaseOf(lease)))
}

func releaseOf(lease api.Lease) api.ReleaseRequest {
	return api.ReleaseRequest{OwnerID: lease.OwnerID, LeaseID: lease.LeaseID, FencingToken: lease.FencingToken}
}

// put writes a record under a lease.
func (g *gateway) put(t *testing.T, lease api.Lease, key, value string, sequence int64) {
	t.Helper()
	_, err := g.Put(t.Context(), lease.Lock, key, lockclient.Write{
		Token: tokenOf(lease, sequence), Value: []byte(value), ContentType: "text/plain",
	})
	check(t, err)
}

func tokenOf(lease api.Lease, sequence int64) api.FencingToken {
	return api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}
}

// putStale writes under a superseded lease, and checks that the write is rejected.
func (g *gateway) putStale(t *testing.T, lease api.Lease, key string) {
	t.Helper()
	_, err := g.Put(t.Context(), lease.Lock, key, lockclient.Write{
		Token: api.FencingToken{Token: lease.FencingToken}, Value: []byte("late"), ContentType: "text/plain",
	})
	if !errors.Is(err, lockclient.ErrTokenStale) {
		t.Fatalf("a write under a superseded lease returned %v, want token_stale", err)
	}
}

// zombie lets an owner lose a lock to another and write under its old token.
func (g *gateway) zombie(t *testing.T, lock, key, owner, next string) (stale, current api.Lease) {
	t.Helper()
	stale = g.hold(t, lock, owner)
	_, err := g.Break(t.Context(), lock, api.BreakRequest{Reason: owner + " does not answer"})
	check(t, err)
	current = g.hold(t, lock, next)
	g.putStale(t, stale, key)
	return stale, current
}

// wait starts an acquire that waits for a lock until the test ends.
func (g *gateway) wait(t *testing.T, lock, owner string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = g.Acquire(ctx, lock, api.AcquireRequest{OwnerID: owner, TTLMS: new(longTTL), WaitMS: longWait})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// queue does the same, and returns when the acquire is in the queue.
func (g *gateway) queue(t *testing.T, lock, owner string) {
	t.Helper()
	g.wait(t, lock, owner)
	await.True(t, owner+" is in the queue of "+lock, func() bool {
		state, err := g.Lock(t.Context(), lock)
		check(t, err)
		return slices.ContainsFunc(state.Queue, func(waiter api.Waiter) bool { return waiter.OwnerID == owner })
	})
}
