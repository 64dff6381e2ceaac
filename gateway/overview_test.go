package gateway

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

const overviewPath = "/v1/overview"

func (h *harness) sample(t testing.TB) {
	t.Helper()
	if _, err := h.gateway.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) overview(t testing.TB, parameters string) api.Overview {
	t.Helper()
	return as[api.Overview](t, h.get(t, overviewPath+parameters), http.StatusOK)
}

// counted is the sum of the points of an overview, in writes.
type counted struct {
	accepted, failed float64
	rejected         map[api.Code]float64
}

func sumOf(overview api.Overview) counted {
	sum := counted{rejected: map[api.Code]float64{}}
	step := float64(overview.StepMS) / 1000
	for _, point := range overview.Points {
		if point.OverviewRates == nil {
			continue
		}
		sum.accepted += point.AcceptedPerS * step
		sum.failed += point.FailedPerS * step
		for code, perS := range point.RejectedPerS {
			sum.rejected[code] += perS * step
		}
	}
	round := func(writes float64) float64 { return math.Round(writes*1e6) / 1e6 }
	sum.accepted, sum.failed = round(sum.accepted), round(sum.failed)
	for code, writes := range sum.rejected {
		sum.rejected[code] = round(writes)
	}
	return sum
}

// hour is the parameter of an overview of all that gateways know.
const hour = "?range_ms=3600000"

// An overview has the inventory, the database and the gateways, and as many points as its range asks for.
func TestOverview(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	lease := h.acquire(t, "job", "w")
	h.awaitReady(t)
	h.sample(t)
	overview := h.overview(t, "?range_ms=60000")
	if overview.StepMS != 2000 || overview.RangeMS != 60_000 || len(overview.Points) != 30 {
		t.Errorf("a minute has %d points of %d ms (range %d ms), want 30 of 2000",
			len(overview.Points), overview.StepMS, overview.RangeMS)
	}
	if i := overview.Inventory; i == nil || i.Locks != 1 || i.Held != 1 || i.Waiting != 0 || i.Expired != 0 {
		t.Errorf("the inventory is %+v, want one held lock", i)
	}
	if d := overview.Database; d.State != api.DatabaseOK || d.DatabaseFacts == nil ||
		d.NewestToken != lease.FencingToken ||
		d.SizeBytes < 1<<20 || d.Connections < 2 {
		t.Errorf("the database is %+v %+v", d, d.DatabaseFacts)
	}
	if len(overview.Gateways) != 1 {
		t.Fatalf("the gateways are %+v", overview.Gateways)
	}
	self := overview.Gateways[0]
	if !self.Self || self.Name != "left" || self.Version != "test" || self.State != api.GatewayServing ||
		self.ConnectionsMax != 16 || time.Since(self.SeenAt.Time) > time.Hour || self.StartedAt.After(self.SeenAt.Time) {
		t.Errorf("this gateway is %+v", self)
	}
}

const overviewStream = "/v1/overview/stream"

// countingDatabase counts the overviews that are read.
type countingDatabase struct {
	Service

	overviews atomic.Int64
}

func (b *countingDatabase) Overview(ctx context.Context) (store.Overview, error) {
	b.overviews.Add(1)
	return b.Service.Overview(ctx)
}

// All readers share one query and one encoded event. Without readers there are no queries.
func TestOverviewStreamIsShared(t *testing.T) {
	h := newGateway(t, Config{}, patientDatabase(t))
	database := &countingDatabase{Service: h.engine}
	h.gateway.service = database
	h.client = serve(t, conforming(t, h.gateway))
	streams := make([]*stream, 20)
	for i := range streams {
		streams[i] = h.open(t, overviewStream)
	}
	texts := map[string]string{} // by ID
	for range 3 {
		for _, s := range streams {
			event := s.next(t, api.EventOverview)
			if text, seen := texts[event.ID]; seen && text != event.Data {
				t.Errorf("the event %s has different texts", event.ID)
			}
			texts[event.ID] = event.Data
		}
	}
	if queries := database.overviews.Load(); queries > int64(len(texts))+1 { // one may be in progress
		t.Errorf("the database was queried %d times for %d events, want once for each", queries, len(texts))
	}
	for _, s := range streams {
		s.close()
	}
	h.awaitStreams(t, 0)
	h.gateway.overviews.Wait()
	if h.gateway.overviews.Ended() != nil {
		t.Error("the last event is kept without readers")
	}
}

// The point of an event has the writes of all gateways in the last step.
func TestOverviewStreamHasTheLastPoint(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	other := h.another(t, Config{Name: "right"})
	h.awaitReady(t)
	s := h.open(t, overviewStream, "Last-Event-ID: 1")
	lease := h.acquire(t, "job", "w")
	accepted := 0.0
	for round := int64(0); accepted != 2; round++ { // on a slow machine an event may skip a step
		if round == 20 {
			t.Fatalf("in %d rounds of 2 writes the points never added up to 2, at last to %v", round, accepted)
		}
		h.put(t, lease, 2*round+1, "x")
		other.put(t, lease, 2*round+2, "x")
		h.sample(t)
		other.sample(t)
		accepted = lastPoints(t, s)
	}
}

// lastPoints returns the accepted writes in the points of the next three events.
func lastPoints(t testing.TB, s *stream) (accepted float64) {
	t.Helper()
	for range 3 {
		event := dataOf[api.OverviewEvent](t, s.next(t, api.EventOverview))
		if event.Point == nil || event.Database.State != api.DatabaseOK {
			t.Fatalf("the event is %+v, want a point and the state ok", event)
		}
		if event.Point.OverviewRates != nil {
			accepted += event.Point.AcceptedPerS * store.SampleInterval.Seconds()
		}
		if len(event.Gateways) == 2 && event.Gateways[1].Name != "right" {
			t.Errorf("the gateways are %+v, want left and right", event.Gateways)
		}
	}
	return accepted
}

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
	h := newHarnessOn(t, Config{}, postgres.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none"})
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
