package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// A drain ends waits and streams, so that clients continue at another gateway. All other requests are answered. After
// its end, the gateway is as before.
func TestDrain(t *testing.T) {
	overBoth(t, func(t *testing.T, http2 bool) {
		h, s, lease := newServed(t, Config{Name: "drained", ShutdownTimeout: time.Minute})
		h.http = newHTTPClient(t, http2)
		elsewhere := h.another(t, Config{})
		stream := h.open(t, lockPath("other", "/watch"))
		stream.next(t, api.EventState)
		nameless := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "nameless"})
		moving := api.AcquireRequest{OwnerID: "moving", RequestID: new("r")}
		first := h.wait(t, "job", moving)
		h.awaitQueue(t, "job", "nameless", "moving")
		second := elsewhere.wait(t, "job", api.AcquireRequest{OwnerID: "second"})
		h.awaitQueue(t, "job", "nameless", "moving", "second")

		if state := as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK); !state.Draining {
			t.Errorf("a drain was answered with %+v", state)
		}
		expectUnavailable(t, <-nameless, api.OutcomeNotApplied)
		expectUnavailable(t, <-first, api.OutcomeNotApplied)
		stream.endedFor(t, endpoint.EndShutdown)
		expectReason(t, h.get(t, "/readyz"), api.CodeUnavailable, "draining")
		expectUnavailable(t, <-h.wait(t, "job", moving), api.OutcomeNotApplied)
		as[api.WriteResult](t, h.put(t, lease, 2, "while it drains"), http.StatusOK)
		if g := h.overview(t, "").Gateways[0]; g.State != api.GatewayDraining {
			t.Errorf("the drained gateway is shown as %+v", g)
		}
		h.sample(t)
		await.True(t, "another gateway shows that it drains", func() bool {
			return elsewhere.overview(t, "").Gateways[0].State == api.GatewayDraining
		})
		await.True(t, "nobody waits at the drained gateway", func() bool {
			state := as[api.Drain](t, h.get(t, "/v1/drain"), http.StatusOK)
			return state == api.Drain{Draining: true}
		})
		h.awaitQueue(t, "job", "moving", "second") // its place is kept
		moved := elsewhere.wait(t, "job", moving)
		await.True(t, "both wait elsewhere", func() bool { return elsewhere.engine.Waiting() == 2 })
		h.release(t, lease)
		lease = granted(t, moved)
		elsewhere.awaitQueue(t, "job", "second")
		elsewhere.release(t, lease)
		lease = granted(t, second)

		as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
		as[api.Health](t, h.get(t, "/readyz"), http.StatusOK)
		again := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "again", RequestID: new("again")})
		elsewhere.release(t, lease)
		granted(t, again)
		s.stop()
		s.expectEnd(t)
	})
}

// The place of a waiter that does not come back is kept for a moment only.
func TestDrainForgetsWhoDoesNotMove(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	elsewhere := h.another(t, Config{})
	gone := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "gone", RequestID: new("r")})
	next := elsewhere.wait(t, "job", api.AcquireRequest{OwnerID: "next"})
	h.awaitQueue(t, "job", "gone", "next")
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectUnavailable(t, <-gone, api.OutcomeNotApplied)
	h.release(t, lease)
	granted(t, next)
}

// A waiter that comes back to its gateway, whose drain has ended, keeps its place.
func TestDrainUndoneKeepsPlaces(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	request := api.AcquireRequest{OwnerID: "w", RequestID: new("r")}
	refused := h.waitInQueue(t, "job", request)
	gone := h.wait(t, "job", api.AcquireRequest{OwnerID: "gone", RequestID: new("gone")})
	h.awaitQueue(t, "job", "w", "gone")
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectUnavailable(t, <-refused, api.OutcomeNotApplied)
	as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
	expectUnavailable(t, <-gone, api.OutcomeNotApplied)
	again := h.wait(t, "job", request)
	await.True(t, "it waits again", func() bool { return h.engine.Waiting() == 1 })
	h.awaitQueue(t, "job", "w") // the place of one that stays away is kept no longer
	h.release(t, lease)
	granted(t, again)
}

// A drain that is undone during the DrainDelay sends nobody away. The shutdown can't be undone.
func TestDrainUndone(t *testing.T) {
	h, s, lease := newServed(t, Config{DrainDelay: time.Hour, ShutdownTimeout: 2 * time.Hour})
	waiter := h.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "w"})
	staying := h.gateway.Staying()
	as[api.Drain](t, h.send(t, http.MethodPut, "/v1/drain", ""), http.StatusOK)
	expectReason(t, h.get(t, "/readyz"), api.CodeUnavailable, "draining")
	as[api.Drain](t, h.delete(t, "/v1/drain"), http.StatusOK)
	as[api.Health](t, h.get(t, "/readyz"), http.StatusOK)
	if h.gateway.Staying() != staying || staying.Err() != nil {
		t.Error("a drain that was undone in time ended the waits")
	}
	h.release(t, lease)
	granted(t, waiter)
	s.stop()
	await.True(t, "the gateway shuts down", h.gateway.Leaving.Load)
	expectUnavailable(t, h.delete(t, "/v1/drain"), api.OutcomeNotApplied)
	h.gateway.Drain() // the delay is over
	s.expectEnd(t)
}

// A gateway that is read-only answers reads, and refuses every request that would change something before it reads it.
func TestReadOnly(t *testing.T) {
	h, _, lease := newServed(t, Config{})
	as[api.WriteResult](t, h.put(t, lease, 2, "kept"), http.StatusOK)
	frozen := h.another(t, Config{ReadOnly: true, Terraform: true})
	refused := 0
	for route, rule := range accessRules {
		method, template, _ := strings.Cut(route, " ")
		if rule.IsPublic() || template == endpoint.DrainRoute || method == http.MethodGet || method == http.MethodHead {
			continue
		}
		refused++
		problem := expectReason(t, frozen.send(t, method, routePath(template, lease.Lock), "?"), api.CodeUnavailable, "gateway_read_only")
		if problem.Outcome != api.OutcomeNotApplied {
			t.Errorf("%s: the outcome is %s", route, problem.Outcome)
		}
	}
	if refused < 20 {
		t.Errorf("%d routes change something", refused)
	}
	if got := frozen.get(t, recordPath(lease.Lock, "k")); string(got.body) != "kept" {
		t.Errorf("the record is answered with %d %s", got.status, got.body)
	}
	as[api.Health](t, frozen.get(t, "/readyz"), http.StatusOK)
	frozen.open(t, lockPath(lease.Lock, "/watch")).next(t, api.EventState)
	h.release(t, lease)
}
