//go:build unix

package faults

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
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
