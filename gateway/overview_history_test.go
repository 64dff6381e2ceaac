package gateway

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// sampling samples a gateway until the test ends or stops it.
func (h *harness) sampling(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		h.gateway.RunSampler(ctx, func(err error) { t.Errorf("sampling: %v", err) })
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// A gateway that shuts down stores its last sample and leaves the list; the others show its last writes. One that dies
// is shown as silent, until another one with its name has started.
func TestOverviewOfGatewaysThatEnd(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	leaver, dead := h.another(t, Config{Name: "leaver"}), h.another(t, Config{Name: "dead"})
	stop := leaver.sampling(t)
	dead.sample(t)
	await.True(t, "all three gateways are listed", func() bool { return len(h.overview(t, "").Gateways) == 3 })
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, leaver.put(t, lease, 1, "x"), http.StatusCreated)
	stop()
	await.True(t, "the last write of the gateway that ended is in a point", func() bool {
		return sumOf(h.overview(t, "")).accepted == 1
	})
	for _, point := range h.overview(t, "").Points {
		if r := point.OverviewRates; r != nil && (r.P50MS == nil) != (r.AcceptedPerS == 0) {
			t.Errorf("the percentiles of the point %+v are missing or wrong: %+v", point.At, *r)
		}
	}
	h.exec(t, "update fence.gateway_states set seen_at = seen_at - interval '7 seconds' where name = 'dead'")
	overview := h.overview(t, "")
	if len(overview.Gateways) != 2 {
		t.Fatalf("the gateways are %+v", overview.Gateways)
	}
	if g := overview.Gateways[0]; g.Name != "dead" || g.State != api.GatewaySilent || g.Self {
		t.Errorf("the dead gateway is shown as %+v, want silent", g)
	}
	if g := overview.Gateways[1]; g.Name != "left" || g.State != api.GatewayServing || !g.Self {
		t.Errorf("the gateway that answers is shown as %+v, want serving", g)
	}
	if g := dead.overview(t, "").Gateways[0]; g.State != api.GatewayServing || !g.Self {
		t.Errorf("the silent gateway shows itself as %+v, want serving", g)
	}
	h.another(t, Config{Name: "dead"}).sample(t)
	if left := h.overview(t, "").Gateways; len(left) != 2 || left[0].Name != "dead" || left[0].State != api.GatewayServing {
		t.Errorf("after a gateway with the name of the dead one has started, the gateways are %+v", left)
	}
}

// What was done by SQL is in the step of the sweep that counted it; guards only from when they are counted, and never
// less than none, whatever PostgreSQL's statistics or a failover forget; what passed apart from what was rejected.
func TestHistoryBySQL(t *testing.T) {
	zombies := store.RejectionClass{Verdict: store.VerdictTokenStale, Kind: store.KindZombie}
	passed := zombies
	passed.Observed = true
	at := func(step float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration((1_000_000 + step) * float64(store.SampleInterval)))
	}
	h := &history{started: time.Now(), last: map[uuid.UUID]store.GatewayState{}, since: at(0)}
	unknown := int64(-1)
	for _, read := range []struct {
		at, swept               float64
		guards, zombies, passed int64
	}{
		{0.5, 0.4, unknown, 70, 0}, {1.5, 1.4, 50, 71, 0}, {2.5, 2.4, 54, 71, 4}, {2.4, 2.3, 52, 71, 0},
		{4.5, 4.4, 3, 77, 4}, {5.5, 5.4, 5, 60, 4},
	} {
		sql := store.SQLTotals{SweptAt: at(read.swept), Guards: new(read.guards),
			Rejected: map[store.RejectionClass]int64{zombies: read.zombies, passed: read.passed}}
		if read.guards == unknown {
			sql.Guards = nil
		}
		h.add(store.Overview{At: at(read.at), Database: store.DatabaseState{BySQL: sql}}, uuid.New())
	}
	points, _ := h.points(at(6), time.Minute)
	var got [6][3]float64 // writes by step: guarded, zombies, passed
	for i, point := range points[len(points)-6:] {
		if rates := point.OverviewRates; rates != nil {
			got[i] = [3]float64{2 * rates.AcceptedPerS, 2 * rates.RejectedByKindPerS[api.KindZombie],
				2 * rates.ObservedByKindPerS[api.KindZombie]}
		}
	}
	if want := [6][3]float64{{}, {0, 1, 0}, {4, 0, 4}, {0, 3, 0}, {0, 3, 0}, {2, 0, 0}}; got != want {
		t.Errorf("the writes by step are %v, want %v", got, want)
	}
}

// The points of a history add up to the totals of all gateways since its start, each in its step.
func TestHistory(t *testing.T) {
	class := store.RejectionClass{Verdict: store.VerdictTokenStale, Kind: store.KindZombie}
	totals := func(accepted int64) store.Totals {
		took := store.WriteTimes{4: accepted}
		return store.Totals{Accepted: accepted, Failed: 2 * accepted, Took: took,
			Rejected: map[store.RejectionClass]int64{class: 3 * accepted}}
	}
	const start = 1_000_000 // the step in which this gateway starts
	at := func(step float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration((start + step) * float64(store.SampleInterval)))
	}
	self, other := uuid.New(), uuid.New()
	type sample struct {
		id            uuid.UUID
		started, seen float64 // in steps
		accepted      int64
	}
	evenly := func(first, last int, writes float64) map[int]float64 {
		steps := map[int]float64{}
		for ; first <= last; first++ {
			steps[first] = writes
		}
		return steps
	}
	for name, c := range map[string]struct {
		reads []sample        // those of the same time are one
		want  map[int]float64 // accepted writes by step; the others were not sampled
	}{
		"its own first sample":       {[]sample{{self, -0.1, 0.1, 3}, {self, -0.1, 1.5, 5}}, map[int]float64{0: 3, 1: 2}},
		"of a gateway that is older": {[]sample{{other, -9, 0.5, 70}, {other, -9, 1.5, 71}}, map[int]float64{1: 1}},
		"of a gateway that is newer": {[]sample{{self, 0, 0.1, 0}, {other, 1.1, 1.5, 7}}, map[int]float64{0: 0, 1: 7}},
		"two samples in a step":      {[]sample{{self, 0, 1.1, 3}, {self, 0, 1.9, 4}}, map[int]float64{1: 4}},
		"after missed samples":       {[]sample{{self, 0, 0.5, 2}, {self, 0, 4.5, 10}}, evenly(0, 4, 2)},
		"samples that are read again, or too late": {
			[]sample{{self, 0, 0.5, 2}, {self, 0, 1.5, 4}, {self, 0, 1.5, 4}, {self, 0, 0.5, 2}, {self, 0, 2.5, 6}}, evenly(0, 2, 2)},
		"after an hour without the database": {
			[]sample{{self, 0, 0.5, 9}, {other, 0, 0.5, 9}, {self, 0, 3600.5, 3609}, {other, 0, 3600.5, 3609}},
			evenly(3451, 3600, 2)},
		"of a gateway that was silent for an hour": {
			[]sample{{self, 0, 0.5, 9}, {other, 0, 0.5, 9}, {self, 0, 3600.5, 9}, {other, 0, 3601.5, 19}, {self, 0, 3601.6, 9},
				{other, 0, 3602.5, 19}}, evenly(3453, 3602, 0)},
		"of a gateway whose rows a failover lost": {
			[]sample{{self, 0, 0.5, 2}, {other, 1, 1.5, 2}, {self, 0, 1.6, 2}, {other, 1, 3.5, 6}}, evenly(0, 3, 2)},
	} {
		h := &history{started: time.Now(), last: map[uuid.UUID]store.GatewayState{}, since: at(0)}
		end := 0.0
		var read []store.GatewayState
		for i, s := range c.reads {
			end = max(end, s.seen)
			read = append(read, store.GatewayState{
				ID: s.id, StartedAt: at(s.started), SeenAt: at(s.seen), Totals: totals(s.accepted),
			})
			if i == len(c.reads)-1 || c.reads[i+1].seen != s.seen {
				h.add(store.Overview{At: at(end), Gateways: read}, self)
				read = nil
			}
		}
		points, each := h.points(at(math.Floor(end)+1), 5*time.Minute)
		if len(points) != 150 || each != store.SampleInterval {
			t.Fatalf("%s: there are %d points of %s", name, len(points), each)
		}
		for i, point := range points {
			step := int(end) - 149 + i
			want, sampled := c.want[step]
			rates := point.OverviewRates
			if !point.At.Equal(at(float64(step))) || (rates != nil) != sampled {
				t.Errorf("%s: the point %d is of %s with %+v, want rates: %v", name, step, point.At, rates, sampled)
			} else if sampled && (rates.AcceptedPerS != want/2 || rates.FailedPerS != want ||
				rates.RejectedPerS[api.CodeTokenStale] != 3*want/2 || rates.RejectedByKindPerS[api.KindZombie] != 3*want/2 ||
				(rates.P50MS != nil) != (want > 0)) {
				t.Errorf("%s: the point %d is %+v, want %v accepted writes", name, step, *rates, want)
			}
		}
	}
}

// An overview has at most 150 points. Each is the sum of its steps, and none of these is more than an hour old.
func TestHistoryStep(t *testing.T) {
	self := uuid.New()
	h := &history{last: map[uuid.UUID]store.GatewayState{}}
	start := time.Unix(0, 0).Add(1_000_000 * store.SampleInterval)
	h.since = start
	for step := range int64(historyMax/store.SampleInterval) + 1 { // the last one is not whole yet
		at := start.Add(time.Duration(step)*store.SampleInterval + store.SampleInterval/2)
		h.add(store.Overview{At: at, Gateways: []store.GatewayState{
			{ID: self, StartedAt: start, SeenAt: at, Totals: store.Totals{Accepted: 10 * (step + 1)}},
		}}, self)
	}
	now := start.Add(historyMax)
	for length, want := range map[time.Duration]time.Duration{
		time.Minute: 2 * time.Second, 5 * time.Minute: 2 * time.Second, 5*time.Minute + 1: 4 * time.Second,
		time.Hour: 24 * time.Second,
	} {
		points, step := h.points(now, length)
		if step != want || len(points) > 150 || time.Duration(len(points))*step < length ||
			!points[0].At.Equal(now.Add(-time.Duration(len(points))*step)) {
			t.Errorf("%s are %d points of %s, want %s", length, len(points), step, want)
		}
		for _, point := range points {
			if point.OverviewRates == nil || point.AcceptedPerS != 5 {
				t.Fatalf("the point of %s within %s is %+v, want 5 accepted writes a second", point.At, length, point.OverviewRates)
			}
		}
	}
	// Steps without samples, of the last seconds, do not lower the rates of the last minute.
	if last := h.lastMinute(now.Add(30 * time.Second)); last == nil || last.AcceptedPerS != 5 {
		t.Errorf("the last minute is %+v, want 5 accepted writes a second", last)
	}
	if last := h.lastMinute(now.Add(2 * historyMax)); last != nil {
		t.Errorf("the last minute of two hours later is %+v, want none", last)
	}
	points, _ := h.points(now.Add(2*historyMax), historyMax)
	if slices.ContainsFunc(points, func(p api.OverviewPoint) bool { return p.OverviewRates != nil }) {
		t.Errorf("the points of two hours later are %+v, want none with rates", points)
	}
}

// Quantiles of write times are interpolated within a class.
func TestQuantile(t *testing.T) {
	bounds := store.WriteTimeBounds
	if bounds[0] != 1e-4 || bounds[2] != 2e-4 || bounds[33] < 9 || bounds[33] > 10 {
		t.Errorf("the bounds are %v", bounds)
	}
	for _, c := range []struct {
		name string
		took writeTimes
		q    float64
		want float64 // seconds
	}{
		{"in the middle of the first class", writeTimes{0: 10}, .5, bounds[0] / 2},
		{"at its end", writeTimes{0: 10}, 1, bounds[0]},
		{"in another class", writeTimes{7: 4}, .25, bounds[6] + (bounds[7]-bounds[6])/4},
		{"of one", writeTimes{7: 1}, .99, bounds[6] + (bounds[7]-bounds[6])*.99},
		{"of a part of one", writeTimes{7: .25}, .5, (bounds[6] + bounds[7]) / 2},
		{"above all", writeTimes{34: 3}, .5, bounds[33]},
		{"at the end of the lower of two", writeTimes{0: 10, 34: 10}, .5, bounds[0]},
		{"in the upper of two", writeTimes{0: 10, 34: 10}, .51, bounds[33]},
	} {
		if got := c.took.quantileMS(c.q); got == nil || math.Abs(*got-1000*c.want) > 1e-3 {
			t.Errorf("%s: %v ms, want %v ms", c.name, got, 1000*c.want)
		}
	}
	if got := new(writeTimes).quantileMS(.5); got != nil {
		t.Errorf("of none: %v", *got)
	}
}
