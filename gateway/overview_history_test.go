package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// sampling samples a gateway until the test ends, or it is stopped.
func (h *harness) sampling(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		NewSampler(h.gateway).Run(ctx, func(err error) { t.Errorf("sampling: %v", err) })
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// load writes under one lease by each source, with some writes that are rejected among them, and returns how many there were.
func load(t *testing.T, h *harness, lock string) (accepted int, rejected map[api.Code]int) {
	t.Helper()
	old := h.acquire(t, lock, "old")
	h.release(t, old)
	lease := h.acquire(t, lock, "new")
	rejected = map[api.Code]int{}
	refuse := func(got answer, code api.Code) {
		refused(t, got, code)
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
		refuse(h.put(t, old, 1, "late"), api.CodeTokenStale)
		as[api.TransactionResult](t, h.post(t, "/v1/transactions", transaction(lease, next())), http.StatusOK)
		accepted++
		refuse(h.send(t, http.MethodPut, recordPath(lock, "k"), "x", token(lease, next()), `If-Match: "999999"`), api.CodeVersionMismatch)
		refuse(h.send(t, http.MethodPut, recordPath(lock, "k"), "x"), api.CodeTokenRequired)
		refused(t, h.send(t, http.MethodPut, recordPath(lock, "k"), "{", token(lease, next()), jsonType), api.CodeInvalidRequest) // is no rejection
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
		t.Errorf("%d verdicts, and %s", len(verdicts), end.text)
	}
	return accepted + 300, rejected
}

// All that all gateways did is in the points, by whatever source, to the write, and at each of them.
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
		var last counted
		deadline := time.Now().Add(time.Minute)
		for last = sumOf(gateway.overview(t, day)); !same(last); last = sumOf(gateway.overview(t, day)) {
			if last.accepted > want.accepted || time.Now().After(deadline) {
				t.Fatalf("the points add up to %+v, want %+v", last, want)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	if timed := h.count(t, "select sum(writes) from fence.samples, unnest(durations) writes"); timed != int64(want.accepted) {
		t.Errorf("%d writes took a time, of %v", timed, want.accepted)
	}
	overview := h.overview(t, day)
	for _, point := range overview.Points {
		if point.OverviewRates == nil {
			continue
		}
		if (point.P50MS == nil) != (point.AcceptedPerS == 0) || (point.P99MS != nil && *point.P99MS < *point.P50MS) {
			t.Errorf("the point %+v %+v", point.At, *point.OverviewRates)
		}
	}
	if len(overview.Gateways) != 2 || !overview.Gateways[0].Self || overview.Gateways[1].Self || overview.Gateways[1].State != api.GatewayServing {
		t.Errorf("the gateways are %+v", overview.Gateways)
	}
}

// A gateway that ends tells what is left to tell, and is gone; one that dies is silent after a while.
func TestOverviewOfGatewaysThatEnd(t *testing.T) {
	h := newHarness(t, Config{Name: "left"})
	leaver, dead := h.another(t, Config{Name: "leaver"}), h.another(t, Config{Name: "dead"})
	stop := leaver.sampling(t)
	dead.sample(t)
	eventually(t, "the leaver is there", func() bool { return len(h.overview(t, "").Gateways) == 3 })
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, leaver.put(t, lease, 1, "x"), http.StatusCreated)
	stop()
	if told := h.count(t, "select sum(accepted) from fence.samples"); told != 1 {
		t.Errorf("%d writes were told", told)
	}
	h.exec(t, "update fence.gateway_states set seen_at = seen_at - interval '7 seconds' where name = 'dead'")
	overview := h.overview(t, "")
	if len(overview.Gateways) != 2 {
		t.Fatalf("the gateways are %+v", overview.Gateways)
	}
	if g := overview.Gateways[0]; g.Name != "dead" || g.State != api.GatewaySilent || g.Self {
		t.Errorf("who died is %+v", g)
	}
	if g := overview.Gateways[1]; g.Name != "left" || g.State != api.GatewayServing || !g.Self {
		t.Errorf("who never told is %+v", g)
	}
	if g := dead.overview(t, "").Gateways[0]; g.State != api.GatewayServing || !g.Self {
		t.Errorf("who answers is %+v", g)
	}
}

// However many ask at the same time, the database is asked once; who can't wait is told so.
func TestHistoryIsReadOnce(t *testing.T) {
	reads := make(chan struct{}, 100)
	letGo := make(chan struct{})
	h := newHistory(func(_ context.Context, length time.Duration) ([]store.Point, error) {
		reads <- struct{}{}
		<-letGo
		return make([]store.Point, length/time.Hour), nil
	})
	var running sync.WaitGroup
	ask := func(length time.Duration) {
		running.Go(func() {
			if points, err := h.points(t.Context(), length); err != nil || len(points) != int(length/time.Hour) {
				t.Errorf("%d points (%v)", len(points), err)
			}
		})
	}
	ask(time.Hour)
	<-reads
	for range 20 {
		ask(time.Hour)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.points(ended, time.Hour); !isUnavailable(err) {
		t.Errorf("who can't wait is told %v", err)
	}
	close(letGo)
	running.Wait()
	if more := len(reads); more != 0 {
		t.Errorf("it was read %d times more", more)
	}
	ask(2 * time.Hour)
	running.Wait()
	if more := len(reads); more != 1 {
		t.Errorf("another length was read %d times", more)
	}
}
