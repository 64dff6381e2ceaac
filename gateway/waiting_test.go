package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// granted reads the lease that somebody waited for.
func granted(t *testing.T, answers <-chan answer) api.Lease {
	t.Helper()
	return as[api.Lease](t, <-answers, http.StatusOK)
}

// Whoever comes first is served first, whichever gateway it waits at, and with a greater token each time (P2, P8).
func TestWaitAcrossGateways(t *testing.T) {
	first := newHarness(t, Config{})
	second := first.another(t, Config{})
	lease := first.acquire(t, "job", "w0")
	var waiters []<-chan answer
	var line []string
	for i, h := range []*harness{second, first, second, first} {
		owner := "w" + strconv.Itoa(i+1)
		waiters = append(waiters, h.wait(t, "job", api.AcquireRequest{OwnerID: owner}))
		line = append(line, owner)
		first.awaitQueue(t, "job", line...)
	}
	lock := as[api.Lock](t, second.get(t, lockPath("job", "")), http.StatusOK)
	if w := lock.Queue[0]; w.Mode != "exclusive" || w.Scope != "node" || w.QueuedAt.Before(lease.GrantedAt.Time) {
		t.Errorf("the first in line is %+v", w)
	}
	held := refused(t, second.post(t, lockPath("job", "/acquire"), `{"owner_id":"hasty"}`), api.CodeLockHeld)
	if *held.QueueLength != 4 || held.Holder.OwnerID != "w0" || *held.RecommendedRetryMS < 5000 {
		t.Errorf("a try is told %+v", held)
	}
	for i, waiter := range waiters {
		first.release(t, lease)
		next := granted(t, waiter)
		if next.OwnerID != line[i] || next.FencingToken <= lease.FencingToken || next.WaitedMS > time.Hour.Milliseconds() {
			t.Errorf("after %+v came %+v", lease, next)
		}
		as[api.WriteResult](t, second.put(t, next, 1, next.OwnerID), []int{http.StatusCreated, http.StatusOK}[min(i, 1)])
		refused(t, first.put(t, lease, 9, "late"), api.CodeTokenStale)
		lease = next
	}
}

// The expiry of a lease serves the next in line as a release does.
func TestWaitForExpiry(t *testing.T) {
	h := newHarness(t, Config{})
	ttl := int64(300)
	lease := as[api.Lease](t, h.post(t, lockPath("job", "/acquire"), encode(api.AcquireRequest{OwnerID: "dead", TTLMS: &ttl})), http.StatusOK)
	next := granted(t, h.wait(t, "job", api.AcquireRequest{OwnerID: "heir"}))
	if next.FencingToken <= lease.FencingToken || next.GrantedAt.Before(lease.ExpiresAt.Time) || next.WaitedMS < 1 {
		t.Errorf("after %+v came %+v", lease, next)
	}
}

func TestWaitIsOver(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "holder")
	got := <-h.wait(t, "job", api.AcquireRequest{OwnerID: "w", WaitMS: 1})
	if held := refused(t, got, api.CodeLockHeld); held.Holder == nil || held.Holder.OwnerID != "holder" || *held.QueueLength != 0 {
		t.Errorf("whose time is over is told %s", got.body)
	}
	h.awaitQueue(t, "job")
	h.release(t, lease)
	h.acquire(t, "job", "another")
}

// Waiting takes longer than a body and an answer may take, and the connection stays good.
func TestWaitOutlivesTimeouts(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		const timeout = time.Second
		h := newTimed(t, Config{BodyTimeout: timeout}, timeout, timeout)
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w"})
		h.awaitQueue(t, "job", "w")
		passed(t, 2*timeout)
		h.awaitQueue(t, "job", "w")
		h.release(t, lease)
		next := granted(t, waiter)
		for sequence := range int64(4) { // on the connection that waited, among others
			as[api.WriteResult](t, h.put(t, next, sequence+1, "x"), []int{http.StatusCreated, http.StatusOK}[min(sequence, 1)])
		}
		again := h.wait(t, "job", api.AcquireRequest{OwnerID: "w2"})
		h.awaitQueue(t, "job", "w2")
		h.release(t, next)
		granted(t, again)
	}
}

// passed returns when time has gone by: there is nothing else to be seen of a timeout that must not happen.
func passed(t *testing.T, interval time.Duration) {
	t.Helper()
	until := time.Now().Add(interval)
	eventually(t, interval.String()+" are over", func() bool { return time.Now().After(until) })
}

// waitOn is wait for a client that may hang up; nobody is told anything then.
func (h *harness) waitOn(ctx context.Context, t *testing.T, request api.AcquireRequest) <-chan error {
	t.Helper()
	gone := make(chan error, 1)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+lockPath("job", "/acquire"), strings.NewReader(encode(request)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	go func() {
		_, err := h.do(t, r)
		gone <- err
	}()
	return gone
}

// A waiter whose connection is closed leaves the line, wherever it stood in it, and holds nobody up (P8).
func TestClientGoneWhileItWaits(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		ctx, hangUp := context.WithCancel(t.Context())
		var gone []<-chan error
		for _, owner := range []string{"gone1", "gone2"} {
			gone = append(gone, h.waitOn(ctx, t, api.AcquireRequest{OwnerID: owner, WaitMS: 600_000}))
		}
		eventually(t, "two wait", func() bool { return h.store.Waiting() == 2 })
		patient := newHarnessClient(t, h).wait(t, "job", api.AcquireRequest{OwnerID: "patient"})
		eventually(t, "three wait", func() bool { return h.store.Waiting() == 3 })
		before := h.sessions(t)
		hangUp()
		for _, answered := range gone {
			if err := <-answered; err == nil {
				t.Error("who hung up got an answer")
			}
		}
		h.awaitQueue(t, "job", "patient")
		h.release(t, lease)
		if next := granted(t, patient); next.FencingToken != lease.FencingToken+1 {
			t.Errorf("token %d came after %d: somebody else was granted the lock", next.FencingToken, lease.FencingToken)
		}
		if after := h.sessions(t); !containsAll(after, before) {
			t.Errorf("of the sessions %q are left %q: statements were cut off", before, after)
		}
		eventually(t, "both requests without an answer are counted", func() bool { // each when its handler has returned
			metrics, _ := h.scrape(t)
			return metrics.value("fencegate_lease_operations_total", "operation", "acquire", "mode", "exclusive", "result", "client_gone") == 2 &&
				metrics.value("fencegate_http_request_duration_seconds", "route", "/v1/locks/{lock}/acquire", "status", "none") == 2
		})
	}
}

// Who closes only its half of the connection is gone, too, and is not answered with something that no handler said.
func TestClientHalfGoneWhileItWaits(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "job", "holder")
	const body = `{"owner_id":"w","wait_ms":600000}`
	connection := h.wire(t, "POST /v1/locks/job/acquire HTTP/1.1\nHost: gateway\n"+jsonType+"\nContent-Length: "+strconv.Itoa(len(body))+"\n\n"+body)
	h.awaitQueue(t, "job", "w")
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(connection); err != nil || len(said) > 0 {
		t.Errorf("it was told %q, %v", said, err)
	}
	h.awaitQueue(t, "job")
}

// newHarnessClient is another client of the same gateway, with connections of its own.
func newHarnessClient(t *testing.T, h *harness) client {
	t.Helper()
	return client{base: h.base, http: newHTTPClient(t, false)}
}

// Whenever a waiter hangs up, it is granted the lock or not, and never is the lock left to nobody: with its request_id it gets what it was
// granted, or hears what became of that.
func TestClientGoneAtItsGrant(t *testing.T) {
	h := newHarness(t, Config{})
	outcomes := map[string]int{}
	for round := range 30 {
		lease := h.acquire(t, "job", "holder")
		request := api.AcquireRequest{OwnerID: "w", WaitMS: 600_000, RequestID: new(string)}
		*request.RequestID = "r" + strconv.Itoa(round)
		ctx, hangUp := context.WithCancel(t.Context())
		gone := h.waitOn(ctx, t, request)
		h.awaitQueue(t, "job", "w")
		released := inBackground(func() answer { return h.post(t, lockPath("job", "/release"), refOf(lease)) })
		passed(t, time.Duration(round%10)*500*time.Microsecond)
		hangUp()
		if err := <-gone; err == nil {
			outcomes["answered"]++
		}
		as[api.Released](t, <-released, http.StatusOK)
		switch got := <-h.wait(t, "job", request); got.status {
		case http.StatusOK:
			outcomes["granted"]++
			h.release(t, as[api.Lease](t, got, http.StatusOK))
		default:
			outcomes["given back"]++
			if lost := refused(t, got, api.CodeLeaseLost); lost.Reason != "released" {
				t.Errorf("the lost lease was %s", got.body)
			}
		}
	}
	t.Log(outcomes)
}

// A gateway that ends sends away who waits, at once and with nothing granted, so that it waits elsewhere.
func TestServeSendsAwayWhoWaits(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		h, s, lease := newServed(t, Config{})
		h.http = newHTTPClient(t, http2)
		elsewhere := h.another(t, Config{})
		waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w"})
		candidate := inBackground(func() answer {
			return h.post(t, "/v1/elections/job/campaign", `{"candidate":"c","wait_ms":600000}`)
		})
		eventually(t, "both wait", func() bool { return h.store.Waiting() == 2 })
		s.ask()
		for _, answers := range []<-chan answer{waiter, candidate} {
			got := <-answers
			if problem := unavailable(t, got, api.OutcomeNotApplied); !strings.Contains(problem.Detail, "The gateway is shutting down") {
				t.Errorf("who waited is told %s", got.body)
			}
		}
		if err := <-s.ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		elsewhere.awaitQueue(t, "job")
		elsewhere.release(t, lease)
		elsewhere.acquire(t, "job", "w")
	}
}

// Two owners who wait for each other are told so, and no third.
func TestDeadlock(t *testing.T) {
	first := newHarness(t, Config{})
	second := first.another(t, Config{})
	first.acquire(t, "x", "a")
	y := second.acquire(t, "y", "b")
	waiter := first.wait(t, "y", api.AcquireRequest{OwnerID: "a"})
	second.awaitQueue(t, "y", "a")
	got := <-second.wait(t, "x", api.AcquireRequest{OwnerID: "b"})
	problem := refused(t, got, api.CodeDeadlock)
	if want := []api.Wait{{OwnerID: "b", Lock: "x"}, {OwnerID: "a", Lock: "y"}}; !slices.Equal(problem.Cycle, want) || problem.Retryable {
		t.Errorf("answered %s, want the cycle %v", got.body, want)
	}
	refused(t, <-second.wait(t, "x", api.AcquireRequest{OwnerID: "c", WaitMS: 1}), api.CodeLockHeld)
	second.release(t, y)
	granted(t, waiter)
}
