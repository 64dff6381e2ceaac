package gateway

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

// scraped is what /metrics shows, by name.
type scraped map[string]*dto.MetricFamily

func (h *harness) scrape(t *testing.T) (scraped, []byte) {
	t.Helper()
	got := h.get(t, "/metrics")
	if got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain; version=") {
		t.Fatalf("/metrics: %d %s", got.status, got.header.Get("Content-Type"))
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(got.body))
	if err != nil {
		t.Fatal(err)
	}
	return families, got.body
}

// value is that of the one metric with the labels, given as name and value in turn; a histogram's is its count, that of none is -1.
func (s scraped) value(name string, labels ...string) float64 {
	metric := s.metric(name, labels...)
	if metric == nil {
		return -1
	}
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
}

// metric is nil if there is none.
func (s scraped) metric(name string, labels ...string) *dto.Metric {
	for _, metric := range s[name].GetMetric() {
		pairs := map[string]string{}
		for _, label := range metric.GetLabel() {
			pairs[label.GetName()] = label.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && pairs[labels[i]] == labels[i+1]
		}
		if matches {
			return metric
		}
	}
	return nil
}

func TestMetrics(t *testing.T) {
	h := newHarness(t, Config{})
	eventually(t, "the store listens", h.store.Listening)
	h.gateway.metrics.Swept(store.Swept{Expired: 3, LeasesForgotten: 2, RejectionsForgotten: 1, SessionsExpired: 4})

	lease := h.acquire(t, "zanzibar/1", "owner-of-zanzibar")
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/acquire"), `{"owner_id":"w"}`), api.CodeLockHeld)
	as[api.Lease](t, h.post(t, lockPath("zanzibar/1", "/renew"), refOf(lease)), http.StatusOK)
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	as[api.WriteResult](t, h.put(t, lease, 2, "x"), http.StatusOK)
	expectProblem(t, h.put(t, lease, 1, "x"), api.CodeTokenStale)
	as[api.TransactionResult](t, h.post(t, "/v1/transactions", transaction(lease, 3)), http.StatusOK)
	expectProblem(t, h.get(t, recordPath("zanzibar/1", "zanzibar")), api.CodeNotFound)
	expectProblem(t, h.get(t, "/zanzibar"), api.CodeNotFound)
	expectProblem(t, h.send(t, "ZANZIBAR", "/v1/locks", ""), api.CodeInvalidRequest)
	h.release(t, lease)
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/renew"), refOf(lease)), api.CodeLeaseLost)
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/break"), `{"reason":"zanzibar"}`), api.CodeNotFound)

	metrics, text := h.scrape(t)
	if strings.Contains(strings.ToLower(string(text)), "zanzibar") {
		t.Error("something that a client sent has become a label")
	}
	const requests, operations, writes = "fencegate_http_request_duration_seconds", "fencegate_lease_operations_total", "fencegate_writes_total"
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{1, operations, []string{"operation", "acquire", "mode", "exclusive", "result", "ok"}},
		{1, operations, []string{"operation", "acquire", "mode", "exclusive", "result", "lock_held"}},
		{1, operations, []string{"operation", "renew", "mode", "exclusive", "result", "ok"}},
		{1, operations, []string{"operation", "renew", "mode", "unknown", "result", "lease_lost"}},
		{1, operations, []string{"operation", "release", "mode", "exclusive", "result", "ok"}},
		{1, operations, []string{"operation", "break", "mode", "unknown", "result", "not_found"}},
		{2, writes, []string{"source", "http", "result", "accepted"}},
		{1, writes, []string{"source", "transaction", "result", "accepted"}},
		{1, writes, []string{"source", "http", "result", "token_stale"}},
		{1, requests, []string{"route", "/v1/locks/{lock}/acquire", "method", "POST", "status", "200"}},
		{1, requests, []string{"route", "/v1/locks/{lock}/acquire", "method", "POST", "status", "409"}},
		{1, requests, []string{"route", "/v1/resources/{resource}/records/{key}", "method", "PUT", "status", "201"}},
		{1, requests, []string{"route", "/v1/resources/{resource}/records/{key}", "method", "PUT", "status", "412"}},
		{1, requests, []string{"route", "/v1/resources/{resource}/records/{key}", "method", "GET", "status", "404"}},
		{1, requests, []string{"route", "/v1/locks", "method", "other", "status", "405"}},
		{1, requests, []string{"route", "none", "method", "GET", "status", "404"}},
		{1, "fencegate_http_requests_in_flight", nil}, // this one
		{1, "fencegate_build_info", []string{"version", "test"}},
		{3, "fencegate_swept_total", []string{"kind", "lease_expired"}},
		{4, "fencegate_swept_total", []string{"kind", "session_expired"}},
		{2, "fencegate_swept_total", []string{"kind", "lease_forgotten"}},
		{1, "fencegate_swept_total", []string{"kind", "rejection_forgotten"}},
		{16, "fencegate_database_connections", []string{"state", "max"}},
		{0, "fencegate_database_connections", []string{"state", "busy"}},
		{0, "fencegate_rejections_dropped_total", nil},
		{1, "fencegate_database_listening", nil},
	} {
		if got := metrics.value(want.name, want.labels...); got != want.value {
			t.Errorf("%s%q is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
}

// What waits and what streams is counted while it does, and how long acquires waited after that.
func TestMetricsOfTheLine(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	lease := h.acquire(t, "job", "holder")
	expectProblem(t, <-h.wait(t, "job", api.AcquireRequest{OwnerID: "w", WaitMS: 1}), api.CodeLockHeld)
	waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	h.awaitQueue(t, "job", "w")
	watch, observer := h.open(t, lockPath("job", "/watch")), h.open(t, "/v1/elections/job/observe")
	watch.next(t, api.EventState)
	observer.next(t, api.EventLeader)
	during, _ := h.scrape(t)
	h.release(t, lease)
	granted(t, waiter)
	as[api.Session](t, h.post(t, sessionPath(session)+"/keepalive", ""), http.StatusOK)
	h.session(t, session) // which is no operation
	as[api.SessionEnded](t, h.send(t, http.MethodDelete, sessionPath(session), ""), http.StatusOK)
	expectProblem(t, h.post(t, sessionPath(session)+"/keepalive", ""), api.CodeLeaseLost)
	expectProblem(t, h.send(t, http.MethodDelete, "/v1/sessions/"+noSession, ""), api.CodeNotFound)
	watch.close()
	observer.close()
	h.awaitStreams(t, 0)
	after, _ := h.scrape(t)
	const operations, waits, sessions = "fencegate_lease_operations_total", "fencegate_acquire_wait_duration_seconds", "fencegate_session_operations_total"
	for _, want := range []struct {
		metrics scraped
		value   float64
		name    string
		labels  []string
	}{
		{during, 1, "fencegate_waiting_acquires", nil},
		{during, 2, "fencegate_open_watches", nil},
		{during, 0, waits, []string{"result", "ok"}},
		{after, 0, "fencegate_waiting_acquires", nil},
		{after, 2, operations, []string{"operation", "acquire", "mode", "exclusive", "result", "ok"}},
		{after, 1, operations, []string{"operation", "acquire", "mode", "exclusive", "result", "lock_held"}},
		{after, 1, waits, []string{"result", "ok"}},
		{after, 1, waits, []string{"result", "lock_held"}},
		{after, 1, "fencegate_lease_operation_duration_seconds", []string{"operation", "acquire"}},
		{after, 1, sessions, []string{"operation", "create", "result", "ok"}},
		{after, 1, sessions, []string{"operation", "keepalive", "result", "ok"}},
		{after, 1, sessions, []string{"operation", "keepalive", "result", "lease_lost"}},
		{after, 1, sessions, []string{"operation", "end", "result", "ok"}},
		{after, 1, sessions, []string{"operation", "end", "result", "not_found"}},
		{after, 1, "fencegate_http_request_duration_seconds", []string{"route", "/v1/sessions/{session}/keepalive", "status", "200"}},
		{after, 1, "fencegate_http_request_duration_seconds", []string{"route", "/v1/locks/{lock}/watch", "status", "200"}},
	} {
		if got := want.metrics.value(want.name, want.labels...); got != want.value {
			t.Errorf("%s%q is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
}
