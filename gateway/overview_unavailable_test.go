package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// Where the database is away, it is told so, with what is known; and when it is back, what was not told meanwhile.
func TestOverviewWhileTheDatabaseIsAway(t *testing.T) {
	cluster := pgtest.NewCluster(t)
	h := newHarnessOn(t, Config{Name: "left"}, store.Config{DatabaseURL: cluster.URL()})
	if err := h.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "before"), http.StatusCreated)
	h.sample(t)
	eventually(t, "the sample is in a point", func() bool { return sumOf(h.overview(t, day)).accepted == 1 })
	h.awaitMetric(t, 1, "fencegate_database_up")
	s := h.open(t, overviewStream)
	if event := dataOf[api.OverviewEvent](t, s.next(t, api.EventOverview)); event.Database.State != api.DatabaseOK || event.Point == nil {
		t.Errorf("before, the event is %+v", event)
	}

	cluster.Stop()
	h.awaitNoDeadConnection(t)
	overview := h.overview(t, "")
	if d := overview.Database; d.State != api.DatabaseUnavailable || !strings.Contains(d.Detail, "connect") || d.DatabaseFacts == nil || d.NewestToken != lease.FencingToken {
		t.Errorf("the database is %+v", d)
	}
	if overview.Inventory == nil || overview.Inventory.Held != 1 || len(overview.Gateways) != 1 || !overview.Gateways[0].Self {
		t.Errorf("what is known is %+v %+v", overview.Inventory, overview.Gateways)
	}
	if gaps(overview) != 150 || len(overview.Points) != 150 || overview.Points[149].At.After(overview.At.Time) {
		t.Errorf("of %d points %d are gaps", len(overview.Points), gaps(overview))
	}
	if _, err := NewSampler(h.gateway).Sample(t.Context()); err == nil {
		t.Error("a sample was kept")
	}
	if metrics, _ := h.scrape(t); metrics.value("fencegate_database_up") != 0 {
		t.Error("a database that does not answer is up")
	}
	h.awaitMetric(t, 1, "fencegate_leases", "state", "held")
	if event := awaitState(t, s, api.DatabaseUnavailable); event.Point != nil || event.Inventory == nil {
		t.Errorf("meanwhile the event is %+v", event)
	}
	for range 3 {
		unavailable(t, h.put(t, lease, 2, "meanwhile"), api.OutcomeNotApplied)
	}

	cluster.Restart()
	h.awaitReady(t)
	as[api.WriteResult](t, h.put(t, lease, 2, "after"), http.StatusOK)
	h.sample(t)
	eventually(t, "what was not told meanwhile is told", func() bool {
		sum := sumOf(h.overview(t, day))
		return sum.accepted == 2 && sum.failed >= 3
	})
	overview = h.overview(t, "")
	if overview.Database.State != api.DatabaseOK || overview.Database.Detail != "" {
		t.Errorf("the database is %+v", overview.Database)
	}
	h.awaitMetric(t, 1, "fencegate_database_up")
	if gap := gaps(overview); gap != len(overview.Points)-2 {
		t.Errorf("there are %d gaps in %d points", gap, len(overview.Points))
	}
	if event := awaitState(t, s, api.DatabaseOK); event.Point == nil {
		t.Errorf("after that the event is %+v", event)
	}
}

// gaps are the points of which nothing is known.
func gaps(overview api.Overview) (n int) {
	for _, point := range overview.Points {
		if point.OverviewRates == nil {
			n++
		}
	}
	return n
}

// awaitState is the next event that says so of the database.
func awaitState(t *testing.T, s *stream, state string) api.OverviewEvent {
	t.Helper()
	for {
		if event := dataOf[api.OverviewEvent](t, s.next(t, api.EventOverview)); event.Database.State == state {
			return event
		}
	}
}

// A gateway whose database was never there tells as much.
func TestOverviewWithoutAnyDatabase(t *testing.T) {
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none"})
	overview := h.overview(t, "?range_ms=86400000")
	if overview.Inventory != nil || overview.Database.DatabaseFacts != nil || overview.Database.State != api.DatabaseUnavailable || len(overview.Points) != 150 {
		t.Errorf("the overview is %+v", overview)
	}
	if g := overview.Gateways; len(g) != 1 || !g[0].Self || g[0].Name != "fencegate" || g[0].StartedAt.After(g[0].SeenAt.Time) {
		t.Errorf("the gateways are %+v", g)
	}
	metrics, _ := h.scrape(t)
	if up := metrics.value("fencegate_database_up"); up != 0 {
		t.Errorf("fencegate_database_up is %v", up)
	}
	if locks := metrics.value("fencegate_locks"); locks != -1 {
		t.Errorf("of a database that was never there fencegate_locks is %v", locks)
	}
}
