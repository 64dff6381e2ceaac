package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

const overviewStream = "/v1/overview/stream"

// asked counts the overviews that are asked for.
type asked struct {
	Backend

	overviews atomic.Int64
}

func (a *asked) Overview(ctx context.Context) (store.Overview, error) {
	a.overviews.Add(1)
	return a.Backend.Overview(ctx)
}

// However many read, the database is asked once, and the answer encoded once; and not at all when nobody reads.
func TestOverviewStreamIsShared(t *testing.T) {
	h := newGateway(t, Config{}, store.Config{DatabaseURL: pgtest.Migrated(t)})
	backend := &asked{Backend: h.store}
	h.gateway.backend = backend
	h.client = serve(t, conforming(t, h.gateway))
	const readers = 20
	streams := make([]*stream, readers)
	for i := range streams {
		streams[i] = h.open(t, overviewStream)
	}
	seen := map[string]map[string]int{} // by id and text
	for range 3 {
		for _, s := range streams {
			event := s.next(t, api.EventOverview)
			if seen[event.id] == nil {
				seen[event.id] = map[string]int{}
			}
			seen[event.id][event.data]++
		}
	}
	for id, texts := range seen {
		if len(texts) != 1 {
			t.Errorf("event %s has %d texts", id, len(texts))
		}
	}
	if asked := backend.overviews.Load(); asked > int64(len(seen))+1 { // one may be under way
		t.Errorf("the database was asked %d times for %d events", asked, len(seen))
	}
	for _, s := range streams {
		s.close()
	}
	h.awaitStreams(t, 0)
	h.gateway.overviews.running.Wait()
	if h.gateway.overviews.current != nil {
		t.Error("the producer has no subscribers and still runs")
	}
}

// The point of an event is what all gateways did in the last two seconds.
func TestOverviewStreamTellsTheLastPoint(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	other := h.another(t, Config{Name: "right"})
	s := h.open(t, overviewStream, "Last-Event-ID: 1")
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	as[api.WriteResult](t, other.put(t, lease, 2, "x"), http.StatusOK)
	h.sample(t)
	other.sample(t)
	var accepted float64
	for accepted < 2 {
		event := dataOf[api.OverviewEvent](t, s.next(t, api.EventOverview))
		if event.Point == nil || event.Database.State != api.DatabaseOK {
			t.Fatalf("the event is %+v", event)
		}
		if event.Point.OverviewRates != nil {
			accepted += event.Point.AcceptedPerS * store.SampleInterval.Seconds()
		}
		if len(event.Gateways) == 2 && event.Gateways[1].Name != "right" {
			t.Errorf("the gateways are %+v", event.Gateways)
		}
	}
	if accepted != 2 {
		t.Errorf("%v writes were told", accepted)
	}
}

// Streams of overviews count among those that may be open, and end like them.
func TestOverviewStreamEnds(t *testing.T) {
	h := newHarness(t, Config{WatchesMax: 1})
	s := h.open(t, overviewStream)
	s.next(t, api.EventOverview)
	refused(t, h.get(t, overviewStream), api.CodeUnavailable)
	refused(t, h.get(t, overviewStream+"?range_ms=60000"), api.CodeInvalidRequest)
	refused(t, h.get(t, overviewStream+"?last_event_id=x"), api.CodeInvalidRequest)
	h.gateway.drain()
	for {
		event := <-s.events
		if event.kind == api.EventOverview {
			continue
		}
		if end := dataOf[api.WatchEnd](t, event); event.kind != api.EventEnd || end.Reason != endShutdown {
			t.Errorf("it ended with %+v", event)
		}
		break
	}
	s.over(t)
	h.gateway.overviews.running.Wait()
}

// A subscriber that does not keep up is ended, and the others go on.
func TestBroadcastEndsSlowSubscribers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	productions := make(chan *production[int], 1)
	const behindMax = 16
	b := &broadcast[int]{until: ctx, behindMax: behindMax, replay: true,
		produce: func(ctx context.Context, to *production[int]) error {
			productions <- to
			<-ctx.Done()
			return ctx.Err()
		}}
	slow, quick := b.subscribe(), b.subscribe()
	to := <-productions
	for i := range behindMax + 1 {
		to.publish(i)
		if event, err := quick.next(ctx); err != nil || event != i {
			t.Fatalf("event %d is %v, %v", i, event, err)
		}
	}
	for i := range behindMax {
		if event, err := slow.next(ctx); err != nil || event != i {
			t.Fatalf("event %d of the slow subscriber is %v, %v", i, event, err)
		}
	}
	if _, err := slow.next(ctx); err != store.ErrSlowReader { //nolint:errorlint // it is just this one
		t.Errorf("the slow subscriber ended with %v, want %v", err, store.ErrSlowReader)
	}
	late := b.subscribe()
	if event, err := late.next(ctx); err != nil || event != behindMax {
		t.Errorf("a late subscriber gets %v, %v, want the last event, %d", event, err, behindMax)
	}
	for _, s := range []*subscriber[int]{slow, quick, late} {
		s.leave()
	}
	b.running.Wait()
	to.publish(99)
	again := b.subscribe()
	defer again.leave()
	if _, waits, _, err := again.pending(); waits || err != nil {
		t.Errorf("a subscriber of the next run gets an event of the run before; error %v", err)
	}
}
