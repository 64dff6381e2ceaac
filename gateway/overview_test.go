package gateway

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

const overviewPath = "/v1/overview"

func (h *harness) sample(t *testing.T) {
	t.Helper()
	if _, err := NewSampler(h.gateway).Sample(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) overview(t *testing.T, parameters string) api.Overview {
	t.Helper()
	return as[api.Overview](t, h.get(t, overviewPath+parameters), http.StatusOK)
}

// counted is what the points of an overview sum up to.
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

// day asks for steps so long that no sample covers more, however slow the machine: then writes add up exactly.
const day = "?range_ms=86400000"

func TestOverview(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	as[api.WriteResult](t, h.put(t, lease, 2, "x"), http.StatusOK)
	refused(t, h.put(t, lease, 1, "x"), api.CodeTokenStale)
	h.sample(t)
	var overview api.Overview
	eventually(t, "the sample is in a whole step", func() bool {
		overview = h.overview(t, day)
		return sumOf(overview).accepted > 0
	})
	sum := sumOf(overview)
	if sum.accepted != 2 || sum.rejected[api.CodeTokenStale] != 1 || len(sum.rejected) != 1 || sum.failed != 0 {
		t.Errorf("the points sum up to %+v", sum)
	}
	overview = h.overview(t, "?range_ms=60000")
	if overview.StepMS != 2000 || overview.RangeMS != 60_000 || len(overview.Points) != 30 {
		t.Errorf("%d points of %d ms for %d ms", len(overview.Points), overview.StepMS, overview.RangeMS)
	}
	if inventory := overview.Inventory; inventory == nil || inventory.Locks != 1 || inventory.Held != 1 || inventory.Waiting != 0 || inventory.Expired != 0 {
		t.Errorf("the inventory is %+v", inventory)
	}
	if d := overview.Database; d.State != api.DatabaseOK || d.DatabaseFacts == nil || d.NewestToken != lease.FencingToken || d.SizeBytes < 1<<20 || d.Connections < 2 {
		t.Errorf("the database is %+v %+v", d, d.DatabaseFacts)
	}
	if len(overview.Gateways) != 1 {
		t.Fatalf("the gateways are %+v", overview.Gateways)
	}
	self := overview.Gateways[0]
	if !self.Self || self.Name != "left" || self.Version != "test" || self.State != api.GatewayServing || self.ConnectionsMax != 16 ||
		time.Since(self.SeenAt.Time) > time.Minute || self.StartedAt.After(self.SeenAt.Time) {
		t.Errorf("this gateway is %+v", self)
	}
}
