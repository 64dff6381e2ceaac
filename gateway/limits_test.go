package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// TestCallerLimits checks that one principal can use no more than its requests, waits and streams, and that the others
// are not affected. Each write of an array counts.
func TestCallerLimits(t *testing.T) {
	const rate = 15 // so few that a slow machine sends more
	h := newGateway(t, Config{Limits: limits.Config{RequestsPerSecond: rate, Waiting: 1, Streams: 1}},
		patientDatabase(t))
	h.guard(t)
	credential := h.key(t, "noisy", "lock,write,observe:")
	noisy, quiet := h.by(credential), h.by(h.key(t, "quiet", "all:"))
	noisy.awaitStatus(t, http.StatusOK)
	quiet.awaitStatus(t, http.StatusOK)
	lease := quiet.acquire(t, "job", "holder")
	limited := func(got answer) {
		t.Helper()
		if problem := expectProblem(t, got, api.CodeRateLimited); got.header.Get("Retry-After") == "" || !problem.Retryable {
			t.Errorf("answered %s %s, want a pause", got.header, got.body)
		}
	}
	waiting := noisy.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "first"})
	limited(noisy.post(t, lockPath("job", "/acquire"), `{"owner_id":"second","wait_ms":60000}`))
	noisy.open(t, lockPath("job", "/watch"))
	limited(noisy.get(t, lockPath("job", "/watch")))
	const lines = 40 * rate // so many that some of the pause is left, however long they take
	array := arrayOf(strings.Repeat(`{"op":"delete","resource":"other","key":"k","fencing_token":1}`+"\n", lines))
	if results := bulkAnswers(t, noisy.post(t, "/v1/writes", array)); len(results) != lines {
		t.Errorf("%d writes were answered, want all %d", len(results), lines)
	}
	got := noisy.post(t, "/v1/writes", array)
	limited(got)
	if pause, _ := strconv.Atoi(got.header.Get("Retry-After")); pause < 2 {
		t.Errorf("after %d writes the pause is %d s, want more", lines, pause)
	}
	for range 100 * rate { // each is forbidden, and counts
		if got = ask(h.gateway, "GET", "/v1/policies", credential); got.status != http.StatusForbidden {
			break
		}
	}
	limited(got)
	quiet.release(t, lease)
	as[api.Lease](t, <-waiting, http.StatusOK)
}

// TestLeasesOfOnePrincipal checks that a principal with as many leases and sessions as one may have gets no more of
// either until some have ended, and that others do.
func TestLeasesOfOnePrincipal(t *testing.T) {
	const most = store.LeasesListed
	h := newGateway(t, Config{CallerLeasesMax: most}, patientDatabase(t))
	h.guard(t)
	greedy, modest := h.by(h.key(t, "greedy", "lock:")), h.by(h.key(t, "modest", "lock:"))
	count := func() {
		h.exec(t, "update fence.inventory set due_at = '-infinity'")
		h.sample(t)
	}
	h.exec(t, `
		insert into fence.leases (lock, fencing_token, lease_id, owner_id, principal, ttl_ms, granted_at, expires_at)
		select 'held/' || n, n, gen_random_uuid(), 'w', 'greedy', 3600000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, most/2)
	h.exec(t, `
		insert into fence.sessions (session_id, owner_id, principal, ttl_ms, created_at, expires_at)
		select gen_random_uuid(), 'w', 'greedy', 3600000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, most/2)
	count()
	expectLimited(t, greedy.post(t, lockPath("one more", "/acquire"), `{"owner_id":"w"}`))
	expectLimited(t, greedy.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`))
	modest.acquire(t, "another", "w")
	as[api.Session](t, modest.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`), http.StatusCreated)
	h.exec(t, "delete from fence.leases where lock = 'held/1'")
	count()
	greedy.acquire(t, "one more", "w")
	as[api.Session](t, greedy.post(t, endpoint.SessionsPath, `{"owner_id":"w"}`), http.StatusCreated)
}

// newHostile is a gateway that serves with the bounds of a real one, but for the time for a header.
func newHostile(t *testing.T, config Config, headerTimeout time.Duration) *harness {
	t.Helper()
	h := newGateway(t, config, patientDatabase(t))
	h.gateway.headerTimeout = headerTimeout
	h.serveItself(t)
	return h
}

// closes expects that the gateway closes a connection.
func closes(t testing.TB, connection net.Conn) {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(await.Limit)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		if _, err := connection.Read(buffer); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // of a connection
				t.Error("a connection stays open, want it closed")
			}
			return
		}
	}
}

// TestConnectionsFromOneAddress checks that connections beyond the limit are closed at once, and that another address is
// served meanwhile.
func TestConnectionsFromOneAddress(t *testing.T) {
	const most = 5
	h := newHostile(t, Config{AddressConnectionsMax: most}, 2*time.Second)
	for range most {
		connection := h.dialFrom(t, "127.0.0.2")
		_, _ = fmt.Fprintf(connection, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := connection.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	closes(t, h.dialFrom(t, "127.0.0.2"))
	as[api.Health](t, h.get(t, "/healthz"), http.StatusOK) // from 127.0.0.1
}

// TestHostileConnections checks that connections which send nothing, or a header that never ends, are closed after the
// time for a header, and that an honest client is served meanwhile. FENCEGATE_CONNECTIONS sets how many there are. Then
// it also checks that each uses little memory; by default, that of other tests counts, too.
func TestHostileConnections(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("FENCEGATE_CONNECTIONS"))
	alone, headerTimeout := err == nil, time.Minute
	if !alone {
		count, headerTimeout = 200, 2*time.Second
	}
	h := newHostile(t, Config{}, headerTimeout)
	h.get(t, "/healthz")
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	hostile := make([]net.Conn, count)
	for i := range hostile {
		hostile[i] = h.dialFrom(t, "127.0.0.2")
		if i%2 == 0 {
			_, _ = fmt.Fprintf(hostile[i], "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Endless: ")
		}
	}
	lease := h.acquire(t, "job", "honest")
	as[api.WriteResult](t, h.put(t, lease, 1, "v"), http.StatusCreated)
	if alone {
		await.True(t, "all connections are open", func() bool { return h.gateway.Connections.Open() >= count })
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	each := int64(during.HeapAlloc+during.StackInuse-before.HeapAlloc-before.StackInuse) / int64(count)
	t.Logf("%d bytes a connection, both of its ends", each)
	if alone && each > 64<<10 {
		t.Errorf("a connection uses %d bytes, want up to 64 KiB", each)
	}
	var closing sync.WaitGroup
	for i, connection := range hostile {
		closing.Go(func() {
			if i%2 == 0 { // a byte now and then does not keep it open
				_, _ = connection.Write([]byte("x"))
			}
			closes(t, connection)
		})
	}
	closing.Wait()
	h.renew(t, lease)
}

// expectLimited checks that a request was refused because its principal has as much as one may have.
func expectLimited(t *testing.T, got answer) {
	t.Helper()
	if problem := expectProblem(t, got, api.CodeRateLimited); got.header.Get("Retry-After") == "" ||
		!problem.Retryable || problem.Outcome != api.OutcomeNotApplied {
		t.Errorf("answered %s %s, want a pause and not_applied", got.header, got.body)
	}
}

// TestPoliciesOfOnePrincipal checks that administrators of some names can fill neither the table of policies nor more
// than their share of it. An administrator of all names and another one of some still set policies.
func TestPoliciesOfOnePrincipal(t *testing.T) {
	h, admin := newGuarded(t)
	root, jobs := h.by(admin), h.by(h.key(t, "jobs", "admin:jobs"))
	others := h.by(h.key(t, "others", "admin:others"))
	put := func(h client, prefix string) answer { return h.send(t, "PUT", "/v1/policies/"+prefix, `{}`, jsonType) }
	set := func(h client, prefix string) {
		t.Helper()
		as[api.Policy](t, put(h, prefix), http.StatusOK)
	}
	set(jobs, "jobs/first")
	h.exec(t, "insert into fence.policies (prefix, principal) select 'jobs/' || n, 'jobs' from generate_series(1, 999) n")
	expectLimited(t, put(jobs, "jobs/one-more"))
	set(jobs, "jobs/first") // it has that one already
	set(others, "others/first")

	h.exec(t, "insert into fence.policies (prefix, principal) select 'p/' || n, n::text from generate_series(1, 8000) n")
	expectLimited(t, put(others, "others/one-more"))
	set(root, "one-more")
}

// TestActionsOfOnePrincipal checks that an administrator of some names who fills the audit log is refused further
// actions, which then have no effect. Others act, and no entry is lost.
func TestActionsOfOnePrincipal(t *testing.T) {
	h, admin := newGuarded(t)
	root, jobs := h.by(admin), h.by(h.key(t, "jobs", "admin,lock:jobs"))
	others := h.by(h.key(t, "others", "admin:others"))
	lease := jobs.acquire(t, "jobs/1", "w")
	as[api.Policy](t, jobs.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
	h.exec(t, `
		insert into fence.audit (principal, address, action, name, details)
		select 'jobs', '192.0.2.1', 'policy_set', 'jobs', '{}' from generate_series(2, 10000)`)
	for name, got := range map[string]answer{
		"PUT a policy":    jobs.send(t, "PUT", "/v1/policies/jobs", `{"require_lease_id":true}`, jsonType),
		"DELETE a policy": jobs.delete(t, "/v1/policies/jobs"),
		"break a lease":   jobs.post(t, lockPath("jobs/1", "/break"), `{"reason":"test"}`),
		"set a fence":     jobs.send(t, "PUT", "/v1/resources/jobs/1/fence", `{"last_token":1,"last_sequence":0,"reason":"test"}`, jsonType),
	} {
		t.Log(name)
		expectLimited(t, got)
	}
	jobs.release(t, lease)
	as[api.Policy](t, others.send(t, "PUT", "/v1/policies/others", `{}`, jsonType), http.StatusOK)
	as[api.Policy](t, root.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
	h.exec(t, "update fence.audit set at = at - interval '1 day' where principal = 'jobs' and id % 1000 = 0")
	as[api.Policy](t, jobs.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
}

// TestLastPlacesAreReserved checks that callers with a scope on some names leave the last streams and the last waits of
// a gateway to one with the scope on all.
func TestLastPlacesAreReserved(t *testing.T) {
	h := newGateway(t, Config{WatchesMax: 10, WaitingMax: 10}, patientDatabase(t))
	h.guard(t)
	root, jobs := h.by(h.key(t, "root", "observe,lock:")), h.by(h.key(t, "jobs", "observe,lock:job"))
	lease := root.acquire(t, "job", "holder")
	waiting := []<-chan answer{}
	for i := range 9 {
		jobs.open(t, lockPath("job", "/watch"))
		waiting = append(waiting, jobs.waitInQueue(t, "job", api.AcquireRequest{OwnerID: fmt.Sprint(i)}))
	}
	expectUnavailable(t, jobs.get(t, lockPath("job", "/watch")), api.OutcomeNotApplied)
	expectUnavailable(t, jobs.post(t, lockPath("job", "/acquire"), `{"owner_id":"w","wait_ms":1}`),
		api.OutcomeNotApplied)
	root.open(t, lockPath("job", "/watch"))
	waiting = append(waiting, root.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "root"}))
	root.release(t, lease)
	for _, each := range waiting {
		jobs.release(t, as[api.Lease](t, <-each, http.StatusOK))
	}
}

// The answer to a zombie that goes on writing is delayed. It holds no body and no connection. Other clients are not
// delayed. A delay ends when its client hangs up, and so many are delayed at the same time. When the gateway drains, the
// zombie gets the same answer as before.
func TestRepeatedRefusalIsDelayed(t *testing.T) {
	h := newHarness(t, Config{RefusalDelayMax: time.Minute})
	zombie, current := h.zombie(t, "job")
	var first answer
	for range endpoint.RefusalsFree { // without a delay
		first = h.put(t, zombie, 1, "late")
		expectProblem(t, first, api.CodeTokenStale)
	}
	for range 20 {
		h.gateway.RefusalDelays.Count(&store.RejectedError{Resource: "job", Token: zombie.FencingToken})
	}
	h.gateway.RefusalDelays.Delayed.Add(endpoint.RefusalDelaysMax)
	expectProblem(t, h.put(t, zombie, 1, "late"), api.CodeTokenStale)
	if now := h.gateway.RefusalDelays.Delayed.Add(-endpoint.RefusalDelaysMax); now != 0 {
		t.Errorf("%d answers beyond the limit are delayed, want none", now)
	}
	const delayed = "fencegate_write_refusals_delayed"
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- h.putFor(ctx, t, zombie, 1, "late") }()
	h.awaitMetric(t, 1, delayed)
	leave()
	if err := <-gone; err == nil {
		t.Error("the request that was cancelled returned an answer")
	}
	h.awaitMetric(t, 0, delayed)

	held := inBackground(func() answer { return h.put(t, zombie, 1, strings.Repeat("late", endpoint.BodyFreeBytes)) })
	h.awaitMetric(t, 1, delayed)
	if used := h.bodyBytes(); used != 0 {
		t.Errorf("the delayed request holds %d bytes of its body, want none", used)
	}
	as[api.WriteResult](t, h.put(t, current, 1, "x"), http.StatusCreated)
	other, _ := h.zombie(t, "other")
	expectProblem(t, h.put(t, other, 1, "late"), api.CodeTokenStale)
	for range endpoint.RefusalsFree + 2 { // version mismatches are no sign of a zombie
		expectProblem(t, h.putWith(t, "job", token(current, 2), `If-Match: "7"`), api.CodeVersionMismatch)
	}
	select {
	case got := <-held:
		t.Fatalf("the zombie was answered %s, want a delay", got.body)
	default:
	}
	// The prober has one for a moment.
	await.True(t, "no database connection is busy during the delay", func() bool { return h.store.PoolStats().Busy == 0 })
	h.gateway.Drain()
	last := <-held
	if expectProblem(t, last, api.CodeTokenStale); !bytes.Equal(last.body, first.body) {
		t.Errorf("the delayed answer is %s, want %s", last.body, first.body)
	}
}

// The answer to an array of which everything is refused for good is delayed, as that to a single write.
func TestBulkRefusalsAreDelayed(t *testing.T) {
	h := newHarness(t, Config{RefusalDelayMax: time.Millisecond})
	zombie, _ := h.zombie(t, "job")
	for range endpoint.RefusalsFree + 1 {
		if results := h.bulk(t, putLine(zombie, 1, "k", "1")+putLine(zombie, 2, "k", "1")); results[1].Code != api.CodeTokenStale {
			t.Fatalf("the results are %+v, want two that are stale", results)
		}
	}
	if metrics, _ := h.scrape(t); metrics.value("fencegate_write_refusals_delayed_total") != 1 {
		t.Error("an array counts as more than one refusal, or as none")
	}
}
