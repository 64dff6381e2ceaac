package postgres_test

import (
	"testing"
	"time"

	waiting "github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// testbed is an enginetest.DB with the checks of this package's tests.
type testbed struct{ *enginetest.DB }

func newTestbed(t testing.TB) *testbed {
	t.Helper()
	return &testbed{enginetest.New(t)}
}

func newCrashbed(t *testing.T, options ...pgtest.Option) (*testbed, *pgtest.Cluster) {
	t.Helper()
	b, cluster := enginetest.NewCrashing(t, options...)
	return &testbed{b}, cluster
}

// through returns the testbed with another Store on its database.
func (b *testbed) through(on *postgres.Store) *testbed {
	db := *b.DB
	db.Store = on
	return &testbed{&db}
}

// forget removes what former cases left. It truncates nothing: all sessions would plan their statements anew.
func (b *testbed) forget(t testing.TB) {
	t.Helper()
	for _, table := range []string{"fences", "subtrees", "waiters", "leases", "sessions", "records", "policies"} {
		b.Exec(t, "delete from fence."+table)
	}
}

// granted acquires a lock that must be free.
func (b *testbed) granted(t testing.TB, request store.AcquireRequest) store.Lease {
	t.Helper()
	lease, err := b.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// session opens a session that lasts for an hour.
func (b *testbed) session(t testing.TB, owner string) store.Session {
	t.Helper()
	session, err := b.CreateSession(t.Context(), store.SessionRequest{OwnerID: owner, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// services are engines on a testbed.
type services struct {
	*enginetest.Engines
	bed *testbed
}

type (
	runningService = enginetest.Running
	outcome        = enginetest.Outcome
	moment         = enginetest.Moment
)

const (
	soon         = waiting.Limit
	never        = enginetest.Never
	beforeServer = enginetest.BeforeServer
	beforeClient = enginetest.BeforeClient
)

var (
	noPoll            = enginetest.NoPoll
	openStore         = enginetest.OpenStore
	runService        = enginetest.Run
	await             = waiting.True
	patient           = waiting.Context
	newSweeper        = enginetest.NewSweeper
	numbered          = enginetest.Numbered
	goAcquire         = enginetest.GoAcquire
	granted           = enginetest.Granted
	answered          = enginetest.Answered
	expectUnavailable = enginetest.Unavailable
)

func newCutter(t *testing.T, b *testbed) *enginetest.Cutter {
	t.Helper()
	return enginetest.NewCutter(t, b.DB)
}

func newServices(t *testing.T, b *testbed, count int, config engine.Config) *services {
	t.Helper()
	return &services{enginetest.NewEngines(t, b.DB, count, config), b}
}
