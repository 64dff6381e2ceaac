package gateway

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

const overviewStream = "/v1/overview/stream"

// countingBackend counts the overviews that are read.
type countingBackend struct {
	Backend

	overviews atomic.Int64
}

func (b *countingBackend) Overview(ctx context.Context) (store.Overview, error) {
	b.overviews.Add(1)
	return b.Backend.Overview(ctx)
}

// All readers share one query and one encoded event. Without readers there are no queries.
func TestOverviewStreamIsShared(t *testing.T) {
	h := newGateway(t, Config{}, patientDatabase(t))
	backend := &countingBackend{Backend: h.store}
	h.gateway.backend = backend
	h.client = serve(t, conforming(t, h.gateway))
	streams := make([]*stream, 20)
	for i := range streams {
		streams[i] = h.open(t, overviewStream)
	}
	texts := map[string]string{} // by ID
	for range 3 {
		for _, s := range streams {
			event := s.next(t, api.EventOverview)
			if text, seen := texts[event.id]; seen && text != event.data {
				t.Errorf("the event %s has different texts", event.id)
			}
			texts[event.id] = event.data
		}
	}
	if queries := backend.overviews.Load(); queries > int64(len(texts))+1 { // one may be in progress
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
