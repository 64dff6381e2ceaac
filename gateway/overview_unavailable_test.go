package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
)

// While the database is down, the overview says so and shows what is known. Afterwards it has the writes since then, in
// the steps of the outage.
func TestOverviewWhileTheDatabaseIsDown(t *testing.T) {
	h, cluster := newClusterHarness(t, Config{Name: "left"})
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "before"), http.StatusCreated)
	h.sample(t)
	await.True(t, "the sample is in a point of the overview",
		func() bool { return sumOf(h.overview(t, hour)).accepted == 1 })
	h.awaitMetric(t, 1, "fencegate_database_up")
	s := h.open(t, overviewStream)
	event := dataOf[api.OverviewEvent](t, s.next(t, api.EventOverview))
	if event.Database.State != api.DatabaseOK || event.Point == nil {
		t.Errorf("the event before the outage is %+v, want the state ok and a point", event)
	}

	cluster.Stop()
	h.awaitNoDeadConnection(t)
	overview := h.overview(t, "")
	if d := overview.Database; d.State != api.DatabaseUnavailable || !strings.Contains(d.Detail, "connect") ||
		d.DatabaseFacts == nil || d.NewestToken != lease.FencingToken {
		t.Errorf("the database is %+v, want it unavailable, with its last facts", d)
	}
	if i := overview.Inventory; i == nil || i.Held != 1 || len(overview.Gateways) != 1 || !overview.Gateways[0].Self {
		t.Errorf("the inventory is %+v and the gateways are %+v, want the last known", i, overview.Gateways)
	}
	if sum := sumOf(overview); sum.accepted != 1 || len(overview.Points) != 150 ||
		overview.Points[149].At.After(overview.At.Time) {
		t.Errorf("the %d points add up to %+v, want 150 with the one write before the outage", len(overview.Points), sum)
	}
	if _, err := h.gateway.sample(t.Context()); err == nil {
		t.Error("a sample was stored without a database")
	}
	h.awaitMetric(t, 0, "fencegate_database_up")
	h.awaitMetric(t, 1, "fencegate_leases", "state", "held")
	if event := awaitState(t, s, api.DatabaseUnavailable); event.Point != nil || event.Inventory == nil {
		t.Errorf("the event during the outage is %+v, want an inventory and no point", event)
	}
	for range 3 {
		expectUnavailable(t, h.put(t, lease, 2, "meanwhile"), api.OutcomeNotApplied)
	}

	cluster.Restart()
	h.awaitReady(t)
	as[api.WriteResult](t, h.put(t, lease, 2, "after"), http.StatusOK)
	h.sample(t)
	await.True(t, "the writes during and after the outage are in the overview", func() bool {
		sum := sumOf(h.overview(t, hour))
		return sum.accepted == 2 && sum.failed >= 3
	})
	h.awaitMetric(t, 1, "fencegate_database_up")
	overview = h.overview(t, "")
	if overview.Database.State != api.DatabaseOK || overview.Database.Detail != "" {
		t.Errorf("the database is %+v, want it ok without a detail", overview.Database)
	}
	sampled := func(point api.OverviewPoint) bool { return point.OverviewRates != nil }
	first := slices.IndexFunc(overview.Points, sampled)
	if gap := slices.IndexFunc(overview.Points[first:], func(p api.OverviewPoint) bool { return !sampled(p) }); gap >= 0 &&
		slices.ContainsFunc(overview.Points[first+gap:], sampled) {
		t.Errorf("the points from the first one with rates on have a gap: %+v", overview.Points[first:])
	}
	if event := awaitState(t, s, api.DatabaseOK); event.Point == nil {
		t.Errorf("the event after the outage is %+v, want a point", event)
	}
}

// awaitState returns the next event with this state of the database.
func awaitState(t testing.TB, s *stream, state string) api.OverviewEvent {
	t.Helper()
	return awaitEvent(t, s, api.EventOverview, func(e api.OverviewEvent) bool { return e.Database.State == state })
}

// A gateway that never reached its database shows no inventory, facts or rates.
func TestOverviewOfADatabaseNeverReached(t *testing.T) {
	h := newHarnessOn(t, Config{}, store.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none"})
	overview := h.overview(t, hour)
	if overview.Inventory != nil || overview.Database.DatabaseFacts != nil || len(overview.Points) != 150 ||
		overview.Database.State != api.DatabaseUnavailable {
		t.Errorf("the overview is %+v, want no inventory, no facts and 150 points", overview)
	}
	if g := overview.Gateways; len(g) != 1 || !g[0].Self || g[0].Name != "fencegate" ||
		g[0].StartedAt.After(g[0].SeenAt.Time) {
		t.Errorf("the gateways are %+v, want this one only", g)
	}
	metrics, _ := h.scrape(t)
	metrics.want(t, []wanted{{0, "fencegate_database_up", ""}, {-1, "fencegate_locks", ""}})
}
