package store_test

import (
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/enginetest"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
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
func (b *testbed) through(on *store.Store) *testbed {
	db := *b.DB
	db.Store = on
	return &testbed{&db}
}

// services is an enginetest.Engines by the short names of this package's tests.
type services struct {
	*testbed
	engines *enginetest.Engines
}

type (
	runningService = enginetest.Running
	outcome        = enginetest.Outcome
	moment         = enginetest.Moment
)

const (
	soon         = enginetest.Soon
	never        = enginetest.Never
	beforeServer = enginetest.BeforeServer
	beforeClient = enginetest.BeforeClient
)

var (
	noPoll            = enginetest.NoPoll
	openStore         = enginetest.OpenStore
	runService        = enginetest.Run
	await             = enginetest.Await
	patient           = enginetest.Patient
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
	return &services{b, enginetest.NewEngines(t, b.DB, count, config)}
}

func (s *services) at(index int) *runningService { return s.engines.At(index) }

func (s *services) queue(t *testing.T, at int, request store.AcquireRequest) <-chan outcome {
	t.Helper()
	return s.engines.Queue(t, at, request)
}

func (s *services) acquire(t *testing.T, at int, request store.AcquireRequest) store.Lease {
	t.Helper()
	return s.engines.Acquire(t, at, request)
}

func (s *services) release(t *testing.T, at int, lease store.Lease) {
	t.Helper()
	s.engines.Release(t, at, lease)
}

func (s *services) session(t *testing.T, at int, owner string, ttl time.Duration) store.Session {
	t.Helper()
	return s.engines.OpenSession(t, at, owner, ttl)
}

func (s *services) expectQuiet(t *testing.T) {
	t.Helper()
	s.engines.ExpectQuiet(t)
}
