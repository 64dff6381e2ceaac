package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// Waiters are granted the lock in the order in which they came, at any gateway, each with a greater token (P2, P8).
func TestWaitAcrossGateways(t *testing.T) {
	first := newHarness(t, Config{})
	second := first.another(t, Config{})
	lease := first.acquire(t, "job", "w0")
	var waiters []<-chan answer
	var queue []string
	for i, h := range []*harness{second, first, second, first} {
		owner := "w" + strconv.Itoa(i+1)
		waiters = append(waiters, h.wait(t, "job", api.AcquireRequest{OwnerID: owner}))
		queue = append(queue, owner)
		first.awaitQueue(t, "job", queue...)
	}
	if w := second.lock(t, "job").Queue[0]; w.Mode != "exclusive" || w.Scope != "node" ||
		w.QueuedAt.Before(lease.GrantedAt.Time) {
		t.Errorf("the first waiter is shown as %+v", w)
	}
	held := expectProblem(t, second.post(t, lockPath("job", "/acquire"), `{"owner_id":"hasty"}`), api.CodeLockHeld)
	if *held.QueueLength != 4 || held.Holder.OwnerID != "w0" || *held.RecommendedRetryMS < 5000 {
		t.Errorf("an acquire behind 4 waiters was refused with %+v", held)
	}
	for i, waiter := range waiters {
		first.release(t, lease)
		next := granted(t, waiter)
		if next.OwnerID != queue[i] || next.FencingToken <= lease.FencingToken || next.WaitedMS > time.Hour.Milliseconds() {
			t.Errorf("the lease %+v was followed by %+v, want %s and a greater token", lease, next, queue[i])
		}
		status := []int{http.StatusCreated, http.StatusOK}[min(i, 1)]
		as[api.WriteResult](t, second.put(t, next, 1, next.OwnerID), status)
		expectProblem(t, first.put(t, lease, 9, "late"), api.CodeTokenStale)
		lease = next
	}
}

func TestWaitTimesOut(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "holder")
	got := <-h.wait(t, "job", api.AcquireRequest{OwnerID: "w", WaitMS: 1})
	held := expectProblem(t, got, api.CodeLockHeld)
	if held.Holder == nil || held.Holder.OwnerID != "holder" || *held.QueueLength != 0 {
		t.Errorf("the waiter whose wait timed out got %s, want the holder and an empty queue", got.body)
	}
	h.awaitQueue(t, "job")
	h.release(t, lease)
	h.acquire(t, "job", "another")
}

// A wait may last longer than the timeouts of bodies, answers and events. Its connection stays usable.
func TestWaitOutlivesTimeouts(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		const timeout = time.Second
		h := newTimed(t, Config{BodyTimeout: timeout}, timeout, timeout)
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w"})
		time.Sleep(2 * timeout) // a timeout that must not happen
		h.awaitQueue(t, "job", "w")
		h.release(t, lease)
		next := granted(t, waiter)
		for sequence := range int64(4) { // on the connection of the wait, among others
			status := []int{http.StatusCreated, http.StatusOK}[min(sequence, 1)]
			as[api.WriteResult](t, h.put(t, next, sequence+1, "x"), status)
		}
		again := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w2"})
		h.release(t, next)
		granted(t, again)
	})
}

// waitOn is wait with a context that may end. It delivers only the error.
func (h *harness) waitOn(ctx context.Context, t testing.TB, request api.AcquireRequest) <-chan error {
	t.Helper()
	gone := make(chan error, 1)
	go func() {
		body := strings.NewReader(encode(request))
		_, err := h.tryFor(ctx, t, http.MethodPost, lockPath("job", "/acquire"), body, jsonType)
		gone <- err
	}()
	return gone
}

// A waiter whose connection is closed leaves the queue at any position, and delays no other waiter (P8).
func TestClientGoneWhileItWaits(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h := newHarness(t, Config{})
		h.http = newHTTPClient(t, http2)
		lease := h.acquire(t, "job", "holder")
		ctx, hangUp := context.WithCancel(t.Context())
		var gone []<-chan error
		for _, owner := range []string{"gone1", "gone2"} {
			gone = append(gone, h.waitOn(ctx, t, api.AcquireRequest{OwnerID: owner, WaitMS: 600_000}))
		}
		await.True(t, "two acquires wait", func() bool { return h.store.Waiting() == 2 })
		patient := newHarnessClient(t, h).wait(t, "job", api.AcquireRequest{OwnerID: "patient"})
		await.True(t, "three acquires wait", func() bool { return h.store.Waiting() == 3 })
		expectKept := h.expectSessionsKept(t)
		hangUp()
		for _, answered := range gone {
			if err := <-answered; err == nil {
				t.Error("the request that was cancelled returned an answer")
			}
		}
		h.awaitQueue(t, "job", "patient")
		h.release(t, lease)
		if next := granted(t, patient); next.FencingToken != lease.FencingToken+1 {
			t.Errorf("token %d followed %d, want the next one: another waiter was granted the lock",
				next.FencingToken, lease.FencingToken)
		}
		expectKept()
		const operations, requests = "fencegate_lease_operations_total", "fencegate_http_request_duration_seconds"
		h.awaitMetric(t, 2, operations, "operation", "acquire", "mode", "exclusive", "result", "client_gone")
		h.awaitMetric(t, 2, requests, "route", "/v1/locks/{lock}/acquire", "status", "none")
	})
}

// A waiter that hangs up at its grant leaves no lock behind. With its request_id it gets its lease, or the end of that.
func TestClientGoneAtItsGrant(t *testing.T) {
	h := newHarness(t, Config{})
	outcomes := map[string]int{}
	for round := range 30 {
		lease := h.acquire(t, "job", "holder")
		request := api.AcquireRequest{OwnerID: "w", WaitMS: 600_000, RequestID: new("r" + strconv.Itoa(round))}
		ctx, hangUp := context.WithCancel(t.Context())
		gone := h.waitOn(ctx, t, request)
		h.awaitQueue(t, "job", "w")
		released := inBackground(func() answer { return h.post(t, lockPath("job", "/release"), refOf(lease)) })
		time.Sleep(time.Duration(round%10) * 500 * time.Microsecond) // varies the moment of the hang-up
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
			expectReason(t, got, api.CodeLeaseLost, "released")
		}
	}
	t.Log(outcomes)
}

// A gateway that shuts down refuses its waiters at once, with nothing granted, so that they can wait elsewhere.
func TestServeRefusesWaiters(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		elsewhere := h.another(t, Config{})
		waiter := h.wait(t, "job", api.AcquireRequest{OwnerID: "w"})
		candidate := inBackground(func() answer {
			return h.campaign(t, "job", api.CampaignRequest{Candidate: "c", WaitMS: 600_000})
		})
		await.True(t, "both acquires wait", func() bool { return h.store.Waiting() == 2 })
		s.stop()
		for _, answers := range []<-chan answer{waiter, candidate} {
			got := <-answers
			problem := expectUnavailable(t, got, api.OutcomeNotApplied)
			if !strings.Contains(problem.Detail, "The gateway is shutting down") {
				t.Errorf("a waiter got %s, want the end of the gateway in the detail", got.body)
			}
		}
		s.expectEnd(t)
		elsewhere.awaitQueue(t, "job")
		elsewhere.release(t, lease)
		elsewhere.acquire(t, "job", "w")
	})
}

// Of two owners that wait for each other, one gets an error with the cycle. A third owner does not.
func TestDeadlock(t *testing.T) {
	first := newHarness(t, Config{})
	second := first.another(t, Config{})
	first.acquire(t, "x", "a")
	y := second.acquire(t, "y", "b")
	waiter := first.waitInQueue(t, "y", api.AcquireRequest{OwnerID: "a"})
	got := <-second.wait(t, "x", api.AcquireRequest{OwnerID: "b"})
	problem := expectProblem(t, got, api.CodeDeadlock)
	want := []api.Wait{{OwnerID: "b", Lock: "x"}, {OwnerID: "a", Lock: "y"}}
	if !slices.Equal(problem.Cycle, want) || problem.Retryable {
		t.Errorf("want the cycle %v, not retryable, got %s", want, got.body)
	}
	expectProblem(t, <-second.wait(t, "x", api.AcquireRequest{OwnerID: "c", WaitMS: 1}), api.CodeLockHeld)
	second.release(t, y)
	granted(t, waiter)
}
