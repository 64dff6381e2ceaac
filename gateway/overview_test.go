package gateway

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
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
