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
