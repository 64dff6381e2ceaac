package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// TestGatewaysOfTheOverview checks that the overview has the newest sample of each gateway, with its totals; that a
// gateway that has not sampled for a while is silent, and that the sweep deletes it a day later; and that it deletes one
// that has ended a minute later.
func TestGatewaysOfTheOverview(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	states := map[string]store.GatewayState{}
	keep := func(name string) {
		t.Helper()
		if _, err := b.KeepSample(t.Context(), states[name], 3*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"c", "a", "b"} {
		states[name] = store.GatewayState{ID: uuid.New(), Name: name}
		keep(name)
		states[name] = store.GatewayState{
			ID: states[name].ID, Name: name, Version: "v", Waiting: int64(i), Streams: 2, Queue: 3, ConnectionsBusy: 4,
			ConnectionsMax: 5, Listening: i > 0, Totals: store.Totals{Accepted: 6, Failed: 7, Took: store.WriteTimes{4: 8, 34: 9},
				Rejected: map[store.RejectionClass]int64{{Verdict: store.VerdictTokenStale, Kind: store.KindZombie}: 10}},
		}
		keep(name)
	}
	if err := b.ForgetGateway(t.Context(), states["b"].ID); err != nil {
		t.Fatal(err)
	}
	sweeper := newSweeper(t, b.Store, postgres.SweeperConfig{})
	expect := func(names ...string) {
		t.Helper()
		expectSwept(t, sweeper, store.Swept{})
		overview, err := b.Overview(t.Context())
		if err != nil || len(overview.Gateways) != len(names) {
			t.Fatalf("the gateways are %+v (%v), want %q", overview.Gateways, err, names)
		}
		for i, name := range names {
			got := overview.Gateways[i]
			want := states[name]
			want.StartedAt, want.SeenAt, want.Silent, want.Ended = got.StartedAt, got.SeenAt, name == "a", name == "b"
			if !reflect.DeepEqual(got, want) || overview.At.Sub(got.StartedAt) < 3*time.Second {
				t.Errorf("gateway %s is %+v, want %+v", name, got, want)
			}
		}
	}
	later := func(name, age string) {
		b.Exec(t, "update fence.gateway_states set seen_at = clock_timestamp() - $1::interval where name = $2", age, name)
	}
	for name, age := range map[string]string{"a": "23 h 59 min", "b": "-1 min", "c": "-1 min"} {
		later(name, age)
	}
	expect("a", "b", "c")
	later("a", "24 h 1 s")
	later("b", "61 s")
	expect("c")
}

// TestOverviewOfAReadOnlyDatabase checks that the overview of a read-only database says so.
func TestOverviewOfAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	alterDatabase(t, b, "default_transaction_read_only = on")
	reader := openStore(t, postgres.Config{DatabaseURL: b.URL})
	overview, err := reader.Overview(t.Context())
	if err != nil || !overview.Database.ReadOnly || overview.Database.Version == "" ||
		overview.Database.ConnectionsMax < 1 {
		t.Errorf("the overview is %+v (%v)", overview, err)
	}
	if _, err := reader.KeepSample(t.Context(), store.GatewayState{ID: uuid.New()}, 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a sample was kept: %v", err)
	}
	if _, err := reader.Recount(context.WithoutCancel(t.Context())); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("it was counted: %v", err)
	}
}

// TestOverviewOfARoleThatSeesLittle checks that a role that may not see other transactions and replication gets no
// wrong numbers.
func TestOverviewOfARoleThatSeesLittle(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	role := valueOf[string](t, b, "select current_database() || '_onlooker'")
	b.Exec(t, "create role "+role)
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + role, "drop role " + role} {
			if _, err := b.SQL.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	b.Exec(t, fmt.Sprintf("grant usage on schema fence to %[1]s; grant select on all tables in schema fence to %[1]s;"+
		"grant execute on function fence.lineage, fence.running_database, fence.running_timeline to %[1]s; "+
		"grant select on all sequences in schema fence to %[1]s", role))
	separator := "?"
	if strings.Contains(b.URL, "?") {
		separator = "&"
	}
	overview, err := openStore(t, postgres.Config{DatabaseURL: b.URL + separator + "options=-crole%3D" +
		role}).Overview(t.Context())
	if err != nil || overview.Database.SynchronousStandbys != nil || overview.Database.SizeBytes < 1<<20 ||
		overview.Database.Connections < 1 {
		t.Errorf("a role that sees little gets %+v (%v)", overview.Database, err)
	}
	if overview, err = b.Overview(t.Context()); err != nil || overview.Database.SynchronousStandbys == nil {
		t.Errorf("a role that sees everything gets %+v (%v)", overview.Database, err)
	}
}

// TestLeasesElsewhere checks what PostgreSQL does with leases that are granted in Redis: it mints their tokens, lets no
// lease of another provider be granted beside them, and believes in them until it is told that they have ended.
func TestLeasesElsewhere(t *testing.T) {
	t.Parallel()
	st := openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	ctx := t.Context()
	for _, provider := range []store.Provider{store.ProviderPostgres, store.ProviderRedis, store.ProviderRedlock} {
		if got := store.ProviderOf(store.NewLeaseID(provider)); got != provider {
			t.Errorf("a lease ID of %s is taken for one of %s", provider, got)
		}
	}
	grant := func(lock store.Name, provider store.Provider) (store.Lease, error) {
		return st.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: lock, OwnerID: "worker", LeaseID: store.NewLeaseID(provider), TTL: time.Hour, Metadata: []byte(`{"a":1}`),
		})
	}
	state := func(lock store.Name, want store.LockState) {
		t.Helper()
		if found, err := st.Lock(ctx, lock); err != nil || found.State != want {
			t.Errorf("%s is %s (%v), want %s", lock, found.State, err, want)
		}
	}

	first, err := grant("orders", store.ProviderRedis)
	if err != nil || store.ProviderOf(first.ID) != store.ProviderRedis || string(first.Metadata) != `{"a":1}` {
		t.Fatalf("the first grant is %+v, %v", first, err)
	}
	second, err := grant("orders", store.ProviderRedis)
	if err != nil || second.Token <= first.Token {
		t.Fatalf("the second grant is %+v, %v, want a token above %d", second, err, first.Token)
	}
	late := store.Write{
		WriteToken: store.WriteToken{Resource: "orders", Token: first.Token},
		Operation:  store.Operation{Kind: store.Put, Key: "k", ContentType: "text/plain", Value: []byte("v")},
	}
	if results, err := st.Write(ctx, []store.Write{late}); err != nil || !errors.Is(results[0].Err, store.ErrStaleToken) {
		t.Errorf("the write of the first holder: %+v, %v, want it rejected as stale", results, err)
	}
	if _, err := grant("orders", store.ProviderRedlock); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a grant by redlock beside one by redis: %v, want it held", err)
	}
	if _, err := st.Acquire(ctx, acquireOf("orders")); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a lease in postgres beside one in redis: %v, want it held", err)
	}
	if err := st.LostReason(ctx, first.Ref()); !isLost(err, "superseded") {
		t.Errorf("the first lease is lost for %v, want superseded", err)
	}
	if err := st.LostReason(ctx, second.Ref()); !isLost(err, "expired") {
		t.Errorf("a lease that Redis has lost is lost for %v, want expired", err)
	}

	running, err := st.LeasesElsewhere(ctx, store.ProviderRedis, "orders", 10)
	if err != nil || len(running) != 1 || running[0] != second.Ref() {
		t.Fatalf("the leases on the lock are %v (%v), want the second", running, err)
	}
	if due, err := st.LeasesElsewhere(ctx, store.ProviderRedis, "", 10); err != nil || len(due) != 0 {
		t.Errorf("due for a look are %v (%v), want none before their TTL is over", due, err)
	}
	settle(ctx, t, st, running[0], time.Minute)
	state("orders", store.LockHeld)
	settle(ctx, t, st, running[0], 0)
	state("orders", store.LockExpired)
	if _, err := st.Acquire(ctx, acquireOf("orders")); err != nil {
		t.Errorf("an acquire after the end in Redis: %v", err)
	}
	if _, err := grant("orders", store.ProviderRedis); !errors.Is(err, store.ErrLeaseHeld) {
		t.Errorf("a grant in redis beside one in postgres: %v, want it held", err)
	}
}

// TestLeasesElsewhereUnderPolicies checks that a policy which needs leases in PostgreSQL is kept.
func TestLeasesElsewhereUnderPolicies(t *testing.T) {
	t.Parallel()
	st := openStore(t, postgres.Config{DatabaseURL: pgtest.Migrated(t)})
	ctx := t.Context()
	for _, policy := range []store.Policy{
		{Prefix: "jobs", Leases: store.ProviderRedis, MaxHold: time.Minute},
		{Prefix: "live", RequireLiveLease: true},
		{Prefix: "etcd", Authority: store.AuthorityExternal},
	} {
		policy.Rule = store.RuleStrict
		if policy.Authority == "" {
			policy.Authority = store.AuthorityBuiltin
		}
		if err := st.PutPolicy(ctx, policy); err != nil {
			t.Fatal(err)
		}
		if got, err := st.Policy(ctx, policy.Prefix); err != nil || got != policy {
			t.Errorf("the policy is %+v (%v), want %+v", got, err, policy)
		}
	}
	bad := store.Policy{
		Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, RequireLiveLease: true, Leases: store.ProviderRedlock,
	}
	if err := st.PutPolicy(ctx, bad); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("require_live_lease with leases in redlock: %v, want it invalid", err)
	}
	for _, c := range []struct {
		lock store.Name
		want error
	}{{"jobs/1", nil}, {"live/1", store.ErrUnsupported}, {"etcd/1", store.ErrExternalAuthority}} {
		lease, err := st.GrantElsewhere(ctx, store.ElsewhereGrant{
			Lock: c.lock, OwnerID: "worker", LeaseID: store.NewLeaseID(store.ProviderRedis), TTL: time.Hour,
		})
		if !errors.Is(err, c.want) {
			t.Errorf("a grant on %s: %v, want %v", c.lock, err, c.want)
		}
		if err == nil && (lease.HoldUntil.IsZero() || lease.ExpiresAt.After(lease.HoldUntil)) {
			t.Errorf("the lease on %s is %+v, want that it is not held longer than its policy allows", c.lock, lease)
		}
	}
}

func settle(ctx context.Context, t *testing.T, st *postgres.Store, ref store.LeaseRef, left time.Duration) {
	t.Helper()
	if err := st.SettleLeases(ctx, []store.LeaseStatus{{LeaseRef: ref, Left: left}}); err != nil {
		t.Fatal(err)
	}
}

func acquireOf(lock store.Name) store.AcquireRequest {
	return store.AcquireRequest{Lock: lock, OwnerID: "other", TTL: time.Hour}
}

func isLost(err error, reason string) bool {
	lost, ok := errors.AsType[*store.LostError](err)
	return ok && lost.Reason == reason
}

// oldestSnapshot returns that of the overview.
func (b *testbed) oldestSnapshot(t *testing.T) time.Duration {
	t.Helper()
	overview, err := b.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return overview.Database.OldestSnapshot
}

// begun opens a transaction beside the Store, runs sql in it, and returns what ends it.
func begun(t *testing.T, url, begin, sql string) (end func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = conn.Close(context.WithoutCancel(t.Context())) }
	t.Cleanup(end)
	for _, statement := range []string{"set application_name = 'old'", begin, sql} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return end
}

// TestOldestSnapshot checks that the overview has the age of the oldest transaction that keeps old versions of rows of
// this database, and that it is not that of another transaction.
func TestOldestSnapshot(t *testing.T) {
	t.Parallel()
	b, cluster := newCrashbed(t, pgtest.Setting("max_prepared_transactions", "1"), pgtest.Setting("autovacuum", "off"))
	b.Exec(t, "create database other")
	b.Exec(t, "create table filled with (autovacuum_enabled = off) as "+
		"select repeat('x', 1000) from generate_series(1, 10000)")
	// The newest: the server ends a session of a test before only a while after its client has left.
	const session = "select clock_timestamp() - a.xact_start from pg_stat_activity a where a.application_name = 'old' " +
		"order by a.backend_start desc limit 1"
	tests := []struct {
		what, begin, sql, age string
		keeps                 bool
		database              string
	}{
		{what: "a snapshot", begin: "begin isolation level repeatable read", sql: "select 1", keeps: true},
		{what: "a transaction that wrote", begin: "begin", sql: "select pg_current_xact_id()", keeps: true},
		{what: "a prepared transaction", begin: "begin; select pg_current_xact_id()", sql: "prepare transaction 'old'",
			age: "select clock_timestamp() - p.prepared from pg_prepared_xacts p", keeps: true},
		{what: "an idle transaction without a snapshot", begin: "begin", sql: "select 1"},
		{what: "a snapshot of another database", begin: "begin isolation level repeatable read", sql: "select 1",
			database: "other"},
	}
	for _, test := range tests {
		url := b.URL
		if test.database != "" {
			url = cluster.DatabaseURL(test.database)
		}
		end := begun(t, url, test.begin, test.sql)
		ages := session
		if test.age != "" {
			ages = test.age
		}
		b.expectSnapshot(t, test.what, ages, test.keeps)
		end()
		if test.age != "" {
			b.Exec(t, "rollback prepared 'old'")
		}
		await(t, "the overview forgets "+test.what, func() bool { return b.oldestSnapshot(t) < time.Millisecond })
	}

	vacuum, stop := context.WithCancel(t.Context())
	vacuumed := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(vacuum, b.URL)
		for _, sql := range []string{
			"set application_name = 'old'", "set vacuum_cost_limit = 1", "set vacuum_cost_delay = 100", "vacuum filled",
		} {
			if err == nil {
				_, err = conn.Exec(vacuum, sql)
			}
		}
		vacuumed <- err
	}()
	await(t, "the vacuum has a snapshot", func() bool {
		return valueOf[bool](t, b, "select exists (select from pg_stat_progress_vacuum join pg_stat_activity a using (pid) "+
			"where a.application_name = 'old' and a.backend_xmin is not null)")
	})
	b.expectSnapshot(t, "a vacuum", session, false)
	stop()
	if err := <-vacuumed; vacuum.Err() == nil || err == nil {
		t.Errorf("the vacuum ended by itself: %v", err)
	}
}

// expectSnapshot expects that the overview has, or has not, the age that the query ages returns.
func (b *testbed) expectSnapshot(t *testing.T, what, ages string, keeps bool) {
	t.Helper()
	before := valueOf[time.Duration](t, b, ages)
	got := b.oldestSnapshot(t)
	after := valueOf[time.Duration](t, b, ages)
	if keeps && (got < before || got > after) {
		t.Errorf("%s: the oldest snapshot is %v old, want %v to %v", what, got, before, after)
	}
	if !keeps {
		await(t, what+" does not count", func() bool {
			age := valueOf[time.Duration](t, b, ages)
			return b.oldestSnapshot(t) < age
		})
	}
}

// TestOldestSnapshotOfAStandby checks that a standby with hot_standby_feedback counts, with a replication slot or
// without, if an old snapshot is open there, and only then.
func TestOldestSnapshotOfAStandby(t *testing.T) {
	t.Parallel()
	const report = time.Second // the shortest wal_receiver_status_interval
	for _, slot := range []string{"", "standby"} {
		t.Run(fmt.Sprintf("slot %q", slot), func(t *testing.T) {
			t.Parallel()
			b, primary := newCrashbed(t)
			keeper := "pg_stat_replication where backend_xmin is not null"
			if slot != "" {
				b.Exec(t, "select pg_create_physical_replication_slot($1)", slot)
				keeper = "pg_replication_slots where xmin is not null"
			}
			standby := primary.Standby(pgtest.Setting("hot_standby_feedback", "on"), pgtest.Setting("primary_slot_name", slot),
				pgtest.Setting("wal_receiver_status_interval", "1s"))
			end := begun(t, standby.URL(), "begin isolation level repeatable read", "select 1")
			await(t, "the standby keeps rows by "+keeper, func() bool {
				return valueOf[bool](t, b, "select exists (select from "+keeper+")")
			})
			work := func() time.Duration {
				b.Exec(t, "select pg_current_xact_id()")
				return b.oldestSnapshot(t)
			}
			await(t, "the snapshot of the standby gets old", func() bool { return work() > 3*report })
			end()
			await(t, "the snapshot of the standby has ended", func() bool { return work() < report })
		})
	}
}
