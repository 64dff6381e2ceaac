package gateway

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencegate/fencegate/gateway/api"
)

// What is committed together is counted, under names as Prometheus wants them.
func TestMetricsOfTheGroup(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "w")
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	as[api.WriteResult](t, h.put(t, lease, 2, "x"), http.StatusOK)
	eventually(t, "the batches have ended", func() bool { return h.store.GroupStats().InFlight.Quick == 0 })
	metrics, text := h.scrape(t)
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{0, "fencegate_write_queue_writes", nil},
		{0, "fencegate_write_queue_bytes", nil},
		{0, "fencegate_write_batches_in_flight", []string{"lane", "quick"}},
		{0, "fencegate_write_batches_in_flight", []string{"lane", "large"}},
		{0, "fencegate_write_batches_in_flight", []string{"lane", "lock_wait"}},
		{2, "fencegate_write_batch_size", nil},
		{2, "fencegate_write_commit_duration_seconds", []string{"lane", "quick"}},
		{0, "fencegate_retries_total", []string{"reason", "busy"}},
		{0, "fencegate_write_queue_refused_total", nil},
	} {
		if got := metrics.value(want.name, want.labels...); got != want.value {
			t.Errorf("%s%q is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}
