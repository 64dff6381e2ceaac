//go:build unix

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient/api"
)

// fixture is a database that contains everything that the dashboard shows at least once.
type fixture struct {
	*gateway

	stale, current api.Lease // of fixtureLock
}

const (
	fixtureLock     = "imports/customers/2026"
	fixtureElection = "schedulers/eu"
)

// newFixture makes, by the API, two importers, one of which lost its lock and did not notice; waiters; a session; an
// election; a policy; a key. By SQL it makes protected tables.
func newFixture(t *testing.T) *fixture { return newFixtureAt(t, startGateway(t)) }

func newFixtureAt(t *testing.T, g *gateway) *fixture {
	t.Helper()
	f := &fixture{gateway: g}
	_, err := f.PutPolicy(t.Context(), "reports", api.PolicyRequest{Rule: "same_token", RequireLiveLease: true})
	check(t, err)

	f.stale, f.current = f.zombie(t, fixtureLock, "row/1", "importer-7f3a", "importer-91bc")
	f.put(t, f.current, "row/1", "Ada", 1)
	f.put(t, f.current, "row/2", "Grace", 2)
	f.queue(t, fixtureLock, "importer-c0de")
	f.queue(t, fixtureLock, "importer-d00d")

	session, err := f.CreateSession(t.Context(),
		api.SessionRequest{OwnerID: "indexer-1", TTLMS: new(longTTL), Metadata: []byte(`{"host":"a7"}`)})
	check(t, err)
	for _, lock := range []string{"index/a", "index/b"} {
		_, err = f.Acquire(t.Context(), lock, api.AcquireRequest{OwnerID: "indexer-1", SessionID: &session.SessionID})
		check(t, err)
	}
	for _, reader := range []string{"reader-1", "reader-2", "reader-3"} {
		_, err = f.Acquire(t.Context(), "reports/daily",
			api.AcquireRequest{OwnerID: reader, Mode: "shared", TTLMS: new(longTTL)})
		check(t, err)
	}
	_, err = f.Acquire(t.Context(), fixtureElection, api.AcquireRequest{
		OwnerID: "scheduler-a", TTLMS: new(longTTL), Metadata: []byte(`{"address":"10.0.0.7:80"}`),
	})
	check(t, err)
	f.key(t, "billing", "lock,write:accounts/eu", "observe:")
	f.protectTables(t)
	f.sqlRole(t)
	return f
}

// protectTables makes a table that is checked, one of the mode observe with a rejection, and two with a problem.
func (g *gateway) protectTables(t *testing.T) {
	t.Helper()
	g.sql(t, `create table accounts (id bigint primary key, balance numeric)`,
		`insert into accounts select i, 100 from generate_series(1, 120) i`, `analyze accounts`,
		`select fence.protect('accounts', 'accounts/{id}')`,
		`create table orders (tenant text, id bigint)`,
		`select fence.protect('orders', 'tenants/{tenant}/orders/{id}', 'observe')`,
		`insert into orders values ('acme', 7)`,
		`create table ledger (id bigint)`, `select fence.protect('ledger', 'ledger/{id}', inserts => 'free')`,
		`alter table ledger disable trigger fencegate_update`,
		`create table invoices (id bigint)`, `select fence.protect('invoices', 'invoices/{id}')`,
		`alter table invoices rename to retired`, `create table invoices (id bigint)`)
}

// sqlRole makes a role with the rights of an application on some names.
func (g *gateway) sqlRole(t *testing.T) {
	t.Helper()
	config, err := pgx.ParseConfig(g.database)
	check(t, err)
	role := config.Database + "_shop" // roles belong to all databases of the server
	g.sql(t, "create role "+role, "grant execute on function fence.guard to "+role,
		"select fence.allow_names('"+role+"', 'orders'), fence.allow_names('"+role+"', 'tenants/7')")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), g.database)
		check(t, err)
		_, err = conn.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		check(t, errors.Join(err, conn.Close(context.Background())))
	})
}

// manyLocks makes n held locks many/00001…, the last with the longest lease.
func (g *gateway) manyLocks(t *testing.T, n int) {
	t.Helper()
	g.sql(t, fmt.Sprintf(`insert into fence.fences (resource, granted_token, open)
			select 'many/' || lpad(i::text, 5, '0'), i, true from generate_series(1, %d) i`, n),
		fmt.Sprintf(`insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
			select 'many/' || lpad(i::text, 5, '0'), i, gen_random_uuid(), 'owner-' || i %% 97, 3600000,
				clock_timestamp() - i * interval '1 ms', clock_timestamp() + interval '1 h' + i * interval '1 s'
			from generate_series(1, %d) i`, n),
		fmt.Sprintf(`select setval('fence.tokens', %d)`, n), `analyze fence.fences`, `analyze fence.leases`)
}

// manyRejections makes n rejection groups, the last of which is the newest.
func (g *gateway) manyRejections(t *testing.T, n int) {
	t.Helper()
	g.sql(t, fmt.Sprintf(`insert into fence.rejections (resource, key, code, reason, source, address, fencing_token,
				granted_token, last_token, last_sequence, owner_id, late_ms, count, first_at, last_at, changed_at)
			select 'many/' || lpad(i::text, 5, '0'), 'key', 'token_stale', 'superseded', 'http', '10.0.0.' || i %% 250,
				i, i + 1, 0, 0, 'owner-' || i %% 97, exp((i %% 97) / 6.0)::bigint, 1 + i %% 9, at, at, at
			from generate_series(1, %d) i, lateral (select clock_timestamp() - (%d - i) * interval '1 s' as at) t`, n, n),
		`analyze fence.rejections`)
}

func TestMain(m *testing.M) {
	code := postgres.Main(m)
	chromium.stop()
	os.Exit(code)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
