//go:build unix

package faults

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/readiness"
)

type gateway = testgateway.Gateway

// startGateway runs fencegate serve before a database.
func startGateway(t *testing.T, databaseURL string, args ...string) *gateway {
	t.Helper()
	return serve(t, append([]string{"--database-url", databaseURL}, args...)...)
}

// serve runs fencegate serve with args, until the test ends.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	return testgateway.Start(t, process.BuildChecked(t), args...)
}

// awaitUnreachable returns when the gateway says that its database does not answer.
func awaitUnreachable(t *testing.T, g *gateway) {
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
	// losesCommits says that it replaces the database by one without the last commits.
	losesCommits bool
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
	url := postgres.Migrated(t)
	return connect(t, url), startFleet(t, url, size, args...)
}

func (f *fleet) at(index int) *gateway { return f.members[index%len(f.members)].Load() }

// crash kills a gateway as kill -9 does, and starts another in its place.
func (f *fleet) crash(t *testing.T, index int) {
	t.Helper()
	dead := f.at(index)
	dead.Kill()
	f.members[index%len(f.members)].Store(startGateway(t, f.databaseURL, f.args...))
	dead.Transport.CloseIdleConnections()
}

// connect gives the test its own way into a database.
func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// query returns the one value that a query yields.
func query[T any](t *testing.T, db *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	check(t, db.QueryRow(patient(t), sql, args...).Scan(&value))
	return value
}

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(patient(t), sql, args...)
	check(t, err)
}

// holdFence keeps the rows of fences locked, so that what gateways do to them waits, until release is called.
func holdFence(t *testing.T, db *pgxpool.Pool, resources ...string) (release func()) {
	t.Helper()
	ctx := patient(t)
	tx, err := db.Begin(ctx)
	check(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) }) // its error is that it was released, or that the database is gone
	held, err := tx.Exec(ctx, "select from fence.fences where resource = any ($1) for update", resources)
	check(t, err)
	if held.RowsAffected() != int64(len(resources)) {
		t.Fatalf("there are not all fences of %q", resources)
	}
	return func() {
		t.Helper()
		check(t, tx.Rollback(ctx))
	}
}

const waitingStatements = `from pg_stat_activity
	where datname = current_database() and application_name = 'fencegate' and wait_event_type = 'Lock'`

// awaitPatient returns when a statement has waited for longer than a gateway lets it wait at first (100 ms): that would
// be given up, and sent again by the gateway, if there still is one.
func awaitPatient(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	await.True(t, "a statement waits for the fence as long as it takes", func() bool {
		return query[bool](t, db, "select exists (select "+waitingStatements+
			" and clock_timestamp() - query_start > interval '500 ms')")
	})
}

// pendingPut is a put whose statement waits for a fence that the test holds.
type pendingPut struct {
	lease   api.Lease
	release func() // the fence
	answer  <-chan answer
}

// startPut acquires a lock at a gateway and sends the first put under it. It returns when the put waits.
func startPut(t *testing.T, db *pgxpool.Pool, g *gateway, ttlMS int64) pendingPut {
	t.Helper()
	lease := mustAcquire(t, g, "job", "worker", ttlMS)
	release := holdFence(t, db, "job")
	put := pendingPut{lease, release, goPut(t, g, numbered(lease, 1))}
	awaitPatient(t, db)
	return put
}

// awaitWaiting returns when a statement of a gateway waits for a lock in the database.
func awaitWaiting(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	await.True(t, "a statement waits for the fence", func() bool {
		return query[bool](t, db, "select exists (select "+waitingStatements+")")
	})
}

// awaitExpiry returns when the newest lease of a lock has expired by the database's clock.
func awaitExpiry(t *testing.T, db *pgxpool.Pool, lock string) {
	t.Helper()
	await.True(t, "the lease expires", func() bool {
		return query[bool](t, db, `select expires_at <= clock_timestamp() from fence.leases where lock = $1
			order by fencing_token desc limit 1`, lock)
	})
}
