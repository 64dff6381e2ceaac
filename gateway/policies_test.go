package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Policies are set, read, listed in byte order, reset and deleted.
func TestPolicies(t *testing.T) {
	h := newHarness(t, Config{})
	list := func() []api.Policy { return as[api.Policies](t, h.get(t, "/v1/policies"), http.StatusOK).Policies }
	if empty := list(); empty == nil || len(empty) != 0 {
		t.Errorf("the first list is %#v, want an empty one", empty)
	}
	every := api.Policy{Prefix: "", Rule: "strict", Authority: "builtin", RequireLiveLease: true,
		MaxHoldMS: 31_536_000_000}
	some := api.Policy{Prefix: "a/b", Rule: "same_token", Authority: "builtin", RequireLeaseID: true}
	other := api.Policy{Prefix: "a%2Fb c", Rule: "strict", Authority: "external"}
	paths := map[string]api.Policy{"": every, "a/b": some, "a%252Fb%20c": other}
	for path, want := range paths {
		expectProblem(t, h.get(t, "/v1/policies/"+path), api.CodeNotFound)
		request := api.PolicyRequest{
			Rule: want.Rule, Authority: want.Authority, RequireLeaseID: want.RequireLeaseID,
			RequireLiveLease: want.RequireLiveLease,
		}
		if want.MaxHoldMS > 0 {
			request.MaxHoldMS = &want.MaxHoldMS
		}
		set := h.setPolicy(t, path, encode(request))
		got := as[api.Policy](t, h.get(t, "/v1/policies/"+path), http.StatusOK)
		if set != want || got != want {
			t.Errorf("the policy was set as %+v and read as %+v, want %+v", set, got, want)
		}
	}
	if want := []api.Policy{every, other, some}; !slices.Equal(list(), want) {
		t.Errorf("the list is %+v, want %+v", list(), want)
	}
	// Fields that are absent get their defaults, not their former values.
	if reset := h.setPolicy(t, "a/b", `{}`); reset != (api.Policy{Prefix: "a/b", Rule: "strict", Authority: "builtin"}) {
		t.Errorf("the empty policy is %+v, want the defaults", reset)
	}
	for path := range paths {
		deleted := h.delete(t, "/v1/policies/"+path)
		if deleted.status != http.StatusNoContent || len(deleted.body) != 0 {
			t.Errorf("the delete returned %d %s, want 204 and no body", deleted.status, deleted.body)
		}
		expectProblem(t, h.delete(t, "/v1/policies/"+path), api.CodeNotFound)
	}
}

// A policy set over HTTP holds for the locks and writes of its names.
func TestPolicyRequirements(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "id", `{"require_lease_id":true}`)
	lease := h.acquire(t, "id", "worker")
	h.unchanged(t, func() { expectProblem(t, h.put(t, lease, 1, "x"), api.CodeLeaseMismatch) })
	as[api.WriteResult](t, h.putWith(t, "id", token(lease, 1), "Lease-Id: "+lease.LeaseID), http.StatusCreated)

	lease = h.acquire(t, "live", "worker")
	h.expire(t, lease)
	as[api.WriteResult](t, h.put(t, lease, 1, "late, but no other lease was granted"), http.StatusCreated)
	h.setPolicy(t, "live", `{"require_live_lease":true}`)
	h.unchanged(t, func() { expectProblem(t, h.put(t, lease, 2, "late"), api.CodeLeaseExpired) })
	h.release(t, lease)
	as[api.WriteResult](t, h.put(t, h.acquire(t, "live", "worker"), 1, "in time"), http.StatusOK)
}

// A lease ends after the max_hold_ms of its policy, however often it is renewed. Renewals, writes and lists say so.
func TestPolicyMaxHold(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "job", `{"max_hold_ms":300}`)
	if free := h.acquire(t, "another", "worker"); free.HoldUntil != nil || free.HoldLeftMS != nil {
		t.Errorf("a lease without a policy has a limit: %+v", free)
	}
	lease := h.acquire(t, "job", "worker")
	if lease.HoldUntil == nil || lease.HoldUntil.Sub(lease.GrantedAt.Time) != 300*time.Millisecond ||
		!lease.ExpiresAt.Equal(lease.HoldUntil.Time) || *lease.HoldLeftMS > 300 {
		t.Fatalf("the lease is %+v, want it to end after 300 ms", lease)
	}
	renewed := h.post(t, lockPath("job", "/renew"), refOf(lease))
	for ; renewed.status == http.StatusOK; renewed = h.post(t, lockPath("job", "/renew"), refOf(lease)) {
		got := as[api.Lease](t, renewed, http.StatusOK)
		if !got.HoldUntil.Equal(lease.HoldUntil.Time) || *got.HoldLeftMS > *lease.HoldLeftMS {
			t.Errorf("the renewal moved the end of %+v: %+v", lease, got)
		}
	}
	lost := expectReason(t, renewed, api.CodeLeaseLost, "max_hold")
	stale := expectReason(t, h.put(t, lease, 1, "late"), api.CodeTokenStale, "max_hold")
	if !strings.Contains(lost.Detail, "max_hold_ms") || !strings.Contains(stale.Detail, "max_hold_ms") {
		t.Errorf("the details are %q and %q, want max_hold_ms in both", lost.Detail, stale.Detail)
	}
	if lock := h.lock(t, "job"); lock.State != "free" {
		t.Errorf("the lock is %+v, want it free", lock)
	}
	ended := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=job"), http.StatusOK).Leases[0]
	// A renewal that was judged just before the end, and is written just after it, moves the end to that moment.
	if ended.EndReason != "max_hold" || !ended.EndedAt.Equal(ended.HoldUntil.Time) ||
		ended.HoldUntil.Before(lease.HoldUntil.Time) {
		t.Errorf("the lease is listed as %+v, want its end at %s", ended, lease.HoldUntil)
	}
	if none := h.setPolicy(t, "job", `{"max_hold_ms":null}`); none.MaxHoldMS != 0 {
		t.Errorf("the policy without a limit is %+v", none)
	}
}
