package gateway

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
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

// load sends accepted and rejected writes from each source, and returns how many.
func load(t *testing.T, h *harness, lock string) (accepted int, rejected map[api.Code]int) {
	t.Helper()
	old := h.acquire(t, lock, "old")
	h.release(t, old)
	lease := h.acquire(t, lock, "new")
	rejected = map[api.Code]int{}
	reject := func(got answer, code api.Code) {
		expectProblem(t, got, code)
		rejected[code]++
	}
	var sequence int64
	next := func() int64 {
		sequence++
		return sequence
	}
	for range 20 {
		h.put(t, lease, next(), "x")
		h.put(t, lease, next(), "x")
		accepted += 2
		reject(h.put(t, old, 1, "late"), api.CodeTokenStale)
		as[api.TransactionResult](t, h.post(t, "/v1/transactions", transaction(lease, next())), http.StatusOK)
		accepted++
		reject(h.putWith(t, lock, token(lease, next()), `If-Match: "999999"`), api.CodeVersionMismatch)
		reject(h.putWith(t, lock), api.CodeTokenRequired)
		expectProblem(t, h.putWith(t, lock, token(lease, next()), jsonType),
			api.CodeInvalidRequest) // no rejection by the rule
	}
	var lines strings.Builder
	for i := range 300 {
		lines.WriteString(putLine(lease, next(), fmt.Sprint("k", i%7), "1"))
		if i%10 == 0 {
			lines.WriteString(putLine(old, 1, "k", "1"))
			rejected[api.CodeTokenStale]++
		}
	}
	if verdicts, end := h.bulk(t, lines.String()); len(verdicts) != 330 || end.End != api.BulkComplete {
		t.Errorf("received %d verdicts and the end %s, want 330 and complete", len(verdicts), end.text)
	}
	return accepted + 300, rejected
}

// The points of an overview add up to all writes of all gateways and sources, at each gateway.
func TestOverviewAddsUpToTheWrite(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	gateways := []*harness{h, h.another(t, Config{Name: "right"})}
	var mu sync.Mutex
	want := counted{rejected: map[api.Code]float64{}}
	var running sync.WaitGroup
	for i, gateway := range gateways {
		gateway.sampling(t)
		for j := range 3 {
			running.Go(func() {
				accepted, rejected := load(t, gateway, fmt.Sprintf("job/%d/%d", i, j))
				mu.Lock()
				defer mu.Unlock()
				want.accepted += float64(accepted)
				for code, writes := range rejected {
					want.rejected[code] += float64(writes)
				}
			})
		}
	}
	running.Wait()
	if t.Failed() {
		return
	}
	same := func(got counted) bool {
		return got.accepted == want.accepted && got.failed == 0 && maps.Equal(got.rejected, want.rejected)
	}
	for _, gateway := range gateways {
		await.True(t, fmt.Sprintf("the points add up to %+v", want), func() bool {
			last := sumOf(gateway.overview(t, day))
			if last.accepted > want.accepted {
				t.Fatalf("the points add up to %+v, want %+v", last, want)
			}
			return same(last)
		})
	}
	for _, point := range h.overview(t, day).Points {
		if point.OverviewRates != nil && math.Abs(total(point.RejectedPerS)-total(point.RejectedByKindPerS)) > 1e-6 {
			t.Errorf("the point %+v has rejections %v by code and %v by kind", point.At, point.RejectedPerS,
				point.RejectedByKindPerS)
		}
	}
	if timed := h.count(t,
		"select sum(writes) from fence.samples, unnest(durations) writes"); timed != int64(want.accepted) {
		t.Errorf("the durations of %d writes are stored, want %v", timed, want.accepted)
	}
	overview := h.overview(t, day)
	for _, point := range overview.Points {
		if point.OverviewRates == nil {
			continue
		}
		if (point.P50MS == nil) != (point.AcceptedPerS == 0) || (point.P99MS != nil && *point.P99MS < *point.P50MS) {
			t.Errorf("the percentiles of the point %+v are missing or wrong: %+v", point.At, *point.OverviewRates)
		}
	}
	if g := overview.Gateways; len(g) != 2 || !g[0].Self || g[1].Self || g[1].State != api.GatewayServing {
		t.Errorf("the gateways are %+v, want two that serve", g)
	}
}

func total[K comparable](perS map[K]float64) (sum float64) {
	for _, each := range perS {
		sum += each
	}
	return sum
}

// A gateway that shuts down stores its last sample and leaves the list. One that dies is shown as silent.
func TestOverviewOfGatewaysThatEnd(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	leaver, dead := h.another(t, Config{Name: "leaver"}), h.another(t, Config{Name: "dead"})
	stop := leaver.sampling(t)
	dead.sample(t)
	await.True(t, "all three gateways are listed", func() bool { return len(h.overview(t, "").Gateways) == 3 })
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, leaver.put(t, lease, 1, "x"), http.StatusCreated)
	stop()
	if stored := h.count(t, "select sum(accepted) from fence.samples"); stored != 1 {
		t.Errorf("the samples have %d writes, want 1", stored)
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
}

// Simultaneous requests share one query. A request whose context ends does not wait for it.
func TestHistoryIsReadOnce(t *testing.T) {
	reads := make(chan struct{}, 100)
	proceed := make(chan struct{})
	h := newHistory(func(_ context.Context, length time.Duration) ([]store.Point, error) {
		reads <- struct{}{}
		<-proceed
		return make([]store.Point, length/time.Hour), nil
	})
	var running sync.WaitGroup
	read := func(length time.Duration) {
		running.Go(func() {
			if points, err := h.points(t.Context(), length); err != nil || len(points) != int(length/time.Hour) {
				t.Errorf("%d points of %s (%v)", len(points), length, err)
			}
		})
	}
	read(time.Hour)
	<-reads
	for range 20 {
		read(time.Hour)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.points(ended, time.Hour); !isUnavailable(err) {
		t.Errorf("a request whose context ended got %v, want unavailable", err)
	}
	close(proceed)
	running.Wait()
	if more := len(reads); more != 0 {
		t.Errorf("the history was read %d times more, want once", more)
	}
	read(2 * time.Hour)
	running.Wait()
	if more := len(reads); more != 1 {
		t.Errorf("another length was read %d times, want once", more)
	}
}
