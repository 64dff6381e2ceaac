package gateway

import (
	"bytes"
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fencegate/fencegate/gateway/metrics"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
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

// value returns the value of the one metric with these labels (name and value in turn): of a histogram its count, and
// -1 if there is no such metric.
func (s scraped) value(name string, labels ...string) float64 {
	metric := s.metric(name, labels...)
	if metric == nil {
		return -1
	}
	return reading(metric)
}

func reading(metric *dto.Metric) float64 {
	counted := float64(metric.GetHistogram().GetSampleCount())
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + counted
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
	await.True(t, "the store listens", h.engine.Listening)
	h.gateway.Metrics.Swept(store.Swept{Expired: 3, LeasesForgotten: 2, RejectionsForgotten: 1, SessionsExpired: 4})

	lease := h.acquire(t, "zanzibar/1", "owner-of-zanzibar")
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/acquire"), `{"owner_id":"w"}`), api.CodeLockHeld)
	h.renew(t, lease)
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	as[api.WriteResult](t, h.put(t, lease, 2, "x"), http.StatusOK)
	expectProblem(t, h.put(t, lease, 1, "x"), api.CodeTokenStale)
	as[api.TransactionResult](t, h.post(t, "/v1/transactions", transaction(lease, 3)), http.StatusOK)
	expectProblem(t, h.post(t, "/v1/transactions", transaction(lease, 2)), api.CodeTokenStale)
	h.bulk(t, putLine(lease, 4, "k", "1")+"7\n")
	expectProblem(t, h.get(t, recordPath("zanzibar/1", "zanzibar")), api.CodeNotFound)
	expectProblem(t, h.get(t, "/zanzibar"), api.CodeNotFound)
	expectProblem(t, h.send(t, "ZANZIBAR", "/v1/locks", ""), api.CodeInvalidRequest)
	h.release(t, lease)
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/renew"), refOf(lease)), api.CodeLeaseLost)
	expectProblem(t, h.post(t, lockPath("zanzibar/1", "/break"), `{"reason":"zanzibar"}`), api.CodeNotFound)

	await.True(t, "the batches have ended", func() bool { return h.engine.GroupStats().InFlight.Quick == 0 })
	metrics, text := h.scrape(t)
	if strings.Contains(strings.ToLower(string(text)), "zanzibar") {
		t.Error("something that a client sent has become a label")
	}
	h.awaitMetric(t, 0, "fencegate_database_connections", "state", "busy") // but for the prober's look at the pool
	const requests, operations = "fencegate_http_request_duration_seconds", "fencegate_lease_operations_total"
	const writes, lane = "fencegate_writes_total", "fencegate_write_batches_in_flight"
	metrics.want(t, []wanted{
		{1, operations, "operation acquire mode exclusive result ok"},
		{1, operations, "operation acquire mode exclusive result lock_held"},
		{1, operations, "operation renew mode exclusive result ok"},
		{1, operations, "operation renew mode unknown result lease_lost"},
		{1, operations, "operation release mode exclusive result ok"},
		{1, operations, "operation break mode unknown result not_found"},
		{2, writes, "source http result accepted"},
		{1, writes, "source transaction result accepted"},
		{1, writes, "source transaction result token_stale"},
		{1, writes, "source http result token_stale"},
		{1, writes, "source bulk result accepted"},
		{-1, writes, "source bulk result invalid_request"}, // what is no write is not counted
		{1, requests, "route /v1/locks/{lock}/acquire method POST status 200"},
		{1, requests, "route /v1/locks/{lock}/acquire method POST status 409"},
		{1, requests, "route /v1/resources/{resource}/records/{key} method PUT status 201"},
		{1, requests, "route /v1/resources/{resource}/records/{key} method PUT status 412"},
		{1, requests, "route /v1/resources/{resource}/records/{key} method GET status 404"},
		{1, requests, "route /v1/locks method other status 405"},
		{1, requests, "route none method GET status 404"},
		{1, "fencegate_http_requests_in_flight", ""}, // this one
		{1, "fencegate_build_info", "version test"},
		{3, "fencegate_swept_total", "kind lease_expired"},
		{4, "fencegate_swept_total", "kind session_expired"},
		{2, "fencegate_swept_total", "kind lease_forgotten"},
		{1, "fencegate_swept_total", "kind rejection_forgotten"},
		{16, "fencegate_database_connections", "state max"},
		{0, "fencegate_rejections_dropped_total", ""},
		{1, "fencegate_database_listening", ""},
		{0, "fencegate_write_queue_writes", ""},
		{0, "fencegate_write_queue_bytes", ""},
		{0, lane, "lane quick"},
		{0, lane, "lane large"},
		{0, lane, "lane lock_wait"},
		{4, "fencegate_write_batch_size", ""},
		{4, "fencegate_write_commit_duration_seconds", "lane quick"},
		{0, "fencegate_retries_total", "reason busy"},
		{0, "fencegate_write_queue_refused_total", ""},
	})
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("the metrics are not as Prometheus wants them: %v, %v", problems, err)
	}
}

// What waits and what streams is counted while it does, and how long acquires waited after that.
func TestMetricsOfQueues(t *testing.T) {
	h := newHarness(t, Config{})
	session := h.createSession(t, "w", time.Hour)
	lease := h.acquire(t, "job", "holder")
	expectProblem(t, <-h.wait(t, "job", api.AcquireRequest{OwnerID: "w", WaitMS: 1}), api.CodeLockHeld)
	waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w", SessionID: &session.SessionID})
	h.awaitQueue(t, "job", "w")
	watch := h.open(t, watchPath)
	watch.next(t, api.EventState)
	during, _ := h.scrape(t)
	h.release(t, lease)
	granted(t, waiter)
	as[api.Session](t, h.keepAlive(t, session), http.StatusOK)
	h.session(t, session) // which is no operation
	h.endSession(t, session)
	expectProblem(t, h.keepAlive(t, session), api.CodeLeaseLost)
	expectProblem(t, h.delete(t, "/v1/sessions/"+noSession), api.CodeNotFound)
	watch.close()
	h.awaitStreams(t, 0)
	after, _ := h.scrape(t)
	const operations, waits = "fencegate_lease_operations_total", "fencegate_acquire_wait_duration_seconds"
	const sessions, requests = "fencegate_session_operations_total", "fencegate_http_request_duration_seconds"
	during.want(t, []wanted{
		{1, "fencegate_waiting_acquires", ""}, {1, "fencegate_open_watches", ""}, {0, waits, "result ok"},
	})
	after.want(t, []wanted{
		{0, "fencegate_waiting_acquires", ""},
		{2, operations, "operation acquire mode exclusive result ok"},
		{1, operations, "operation acquire mode exclusive result lock_held"},
		{1, waits, "result ok"},
		{1, waits, "result lock_held"},
		{1, "fencegate_lease_operation_duration_seconds", "operation acquire"},
		{1, sessions, "operation create result ok"},
		{1, sessions, "operation keepalive result ok"},
		{1, sessions, "operation keepalive result lease_lost"},
		{1, sessions, "operation end result ok"},
		{1, sessions, "operation end result not_found"},
		{1, requests, "route /v1/sessions/{session}/keepalive status 200"},
		{1, requests, "route /v1/locks/{lock}/watch status 200"},
	})
}

// hostileWords are words that a client may send for anything; each round has others of the same kinds.
func hostileWords(round string) []string {
	return []string{
		"ZANZIBAR" + round, "zanzibar-" + round, "zanzibar\n" + round, `zanzibar"}` + round, "zanzibar\u202e" + round,
		"zanzibar\x00" + round,
		strings.Repeat("zanzibar", 100) + round, "<img src=zanzibar onerror=alert(1)>" + round,
	}
}

// Whatever clients send, the number of series stays the same, and labels have the values that docs/observability.md lists.
func TestMetricLabelsAreBounded(t *testing.T) {
	h := newHarness(t, Config{})
	for _, word := range hostileWords("A") {
		h.beHostile(t, word)
	}
	h.scrape(t) // its own
	before, _ := h.scrape(t)
	for _, word := range hostileWords("B") {
		h.beHostile(t, word)
	}
	after, text := h.scrape(t)
	if before, after := before.series(), after.series(); after != before {
		t.Errorf("there were %d series and are %d", before, after)
	}
	if bytes.Contains(bytes.ToLower(text), []byte("zanzibar")) {
		t.Error("something that a client sent has become a label")
	}
	declared := map[string]*metrics.Family{}
	for _, f := range metrics.Families() {
		declared[f.Name] = f
	}
	for name, shown := range after {
		if strings.HasPrefix(name, "fencegate_") {
			expectDeclared(t, declared[name], shown)
		}
	}
}

// expectDeclared holds a family that is shown against its declaration.
func expectDeclared(t *testing.T, declared *metrics.Family, shown *dto.MetricFamily) {
	t.Helper()
	if declared == nil {
		t.Errorf("%s is not declared", shown.GetName())
		return
	}
	kind := strings.ToLower(shown.GetType().String())
	if kind != string(declared.Kind) || shown.GetHelp() != declared.Help {
		t.Errorf("%s is a %s, %q, want a %s, %q", declared.Name, kind, shown.GetHelp(), declared.Kind, declared.Help)
	}
	for _, metric := range shown.GetMetric() {
		if len(metric.GetLabel()) != len(declared.Labels) {
			t.Errorf("%s has the labels %v", declared.Name, metric.GetLabel())
		}
		for _, label := range declared.Labels {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label.Name && label.Open == "" && !slices.Contains(label.Values, pair.GetValue()) {
					t.Errorf("%s{%s=%q} is not declared", declared.Name, label.Name, pair.GetValue())
				}
			}
		}
	}
}

func (s scraped) series() (total int) {
	for _, family := range s {
		if strings.HasPrefix(family.GetName(), "fencegate_") {
			total += len(family.GetMetric())
		}
	}
	return total
}

// beHostile sends the word wherever one can be sent.
func (h *harness) beHostile(t *testing.T, word string) {
	t.Helper()
	method := word
	if strings.ContainsFunc(word, func(c rune) bool { return c < 'A' || c > 'z' }) {
		method = http.MethodPatch // the word can't be a method
	}
	escaped, query := url.PathEscape(word), url.QueryEscape(word)
	for _, path := range []string{
		"/" + escaped, lockPath(word, ""), lockPath(word, "/"+escaped), recordPath(word, word), "/v1/sessions/" + escaped,
		"/v1/policies/" + escaped, "/v1/rejections?code=" + query, "/v1/locks?state=" + query,
	} {
		h.send(t, method, path, "")
		h.get(t, path)
	}
	for _, body := range []api.AcquireRequest{{OwnerID: word}, {OwnerID: "w", Mode: word}, {OwnerID: "w", Scope: word}} {
		h.post(t, lockPath(word, "/acquire"), encode(body))
	}
	lease := api.Lease{Lock: word, OwnerID: word, LeaseID: word, FencingToken: 1}
	for _, action := range []string{"/renew", "/release", "/break"} {
		h.post(t, lockPath(word, action), refOf(lease))
	}
	h.put(t, lease, 1, word)
	h.putWith(t, "r", "Fencing-Token: 1", "Content-Type: "+strings.Map(inHeader, word))
	h.bulk(t, encode(api.BulkWrite{Op: word, Resource: word, Key: word})+"\n")
	rejected := &store.RejectedError{Verdict: store.VerdictTokenStale, Resource: store.Name(word), Token: 1}
	h.recorder.Record(rejected, metrics.SourceHTTP, "test", "")
}

// inHeader drops what a header can't have.
func inHeader(c rune) rune {
	if c < ' ' || c > '~' {
		return -1
	}
	return c
}

// A heartbeat is late if more than a third of the TTL has passed, also if it comes too late for its lease.
func TestMetricsOfHeartbeats(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "a", "w")
	session := h.createSession(t, "w", time.Hour)
	keep := func() answer { return h.keepAlive(t, session) }
	renew := func() answer { return h.post(t, lockPath("a", "/renew"), refOf(lease)) }
	const lateness = "fencegate_heartbeat_lateness_seconds"
	const leases = "update fence.leases set expires_at = expires_at - interval '"
	const sessions = "update fence.sessions set expires_at = expires_at - interval '"
	renewAfterOther := func() answer {
		h.acquire(t, "a", "other")
		return renew()
	}
	late, reported := 0.0, 0.0
	for _, c := range []struct {
		what, change string
		heartbeat    func() answer
		status       int
		late         float64 // -1: it is not known
	}{
		{"in time", leases + "15 minutes'", renew, http.StatusOK, 0},
		{"late", leases + "25 minutes'", renew, http.StatusOK, 300},
		{"too late", leases + "70 minutes'", renew, http.StatusConflict, 3000},
		{"after the next was granted", "", renewAfterOther, http.StatusConflict, 3000},
		{"after it was forgotten", "delete from fence.leases where owner_id = 'w'", renew, http.StatusConflict, -1},
		{"a session's, in time", sessions + "15 minutes'", keep, http.StatusOK, 0},
		{"a session's, late", sessions + "25 minutes'", keep, http.StatusOK, 300},
		{"a session's, too late", sessions + "70 minutes'", keep, http.StatusConflict, 3000},
	} {
		h.exec(t, cmp.Or(c.change, "select"))
		if got := c.heartbeat(); got.status != c.status {
			t.Fatalf("%s: %d %s", c.what, got.status, got.body)
		}
		metrics, _ := h.scrape(t)
		now := metrics.value(lateness)
		if c.late >= 0 {
			reported++
			if by := metrics.sum(lateness) - late; by < c.late || by > c.late+300 || c.late == 0 && by != 0 {
				t.Errorf("%s: %v s late, want %v", c.what, by, c.late)
			}
		}
		if now != reported {
			t.Errorf("%s: %v heartbeats are counted, want %v", c.what, now, reported)
		}
		late = metrics.sum(lateness)
	}
}
