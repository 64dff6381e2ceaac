package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

func (c client) setPolicy(t testing.TB, prefix, body string) api.Policy {
	t.Helper()
	return as[api.Policy](t, c.send(t, http.MethodPut, "/v1/policies/"+prefix, body, jsonType), http.StatusOK)
}

func TestPolicyLife(t *testing.T) {
	h := newHarness(t, Config{})
	if empty := as[api.Policies](t, h.get(t, "/v1/policies"), http.StatusOK); empty.Policies == nil || len(empty.Policies) != 0 {
		t.Errorf("at first there are %+v", empty)
	}
	every := api.Policy{Prefix: "", Rule: "strict", Authority: "builtin", RequireLiveLease: true, MaxHoldMS: 31_536_000_000}
	some := api.Policy{Prefix: "a/b", Rule: "same_token", Authority: "builtin", RequireLeaseID: true}
	other := api.Policy{Prefix: "a%2Fb c", Rule: "strict", Authority: "external"}
	for path, want := range map[string]api.Policy{"": every, "a/b": some, "a%252Fb%20c": other} {
		refused(t, h.get(t, "/v1/policies/"+path), api.CodeNotFound)
		request := api.PolicyRequest{Rule: want.Rule, Authority: want.Authority, RequireLeaseID: want.RequireLeaseID, RequireLiveLease: want.RequireLiveLease}
		if want.MaxHoldMS > 0 {
			request.MaxHoldMS = &want.MaxHoldMS
		}
		body := encode(request)
		if set := h.setPolicy(t, path, body); set != want {
			t.Errorf("set: %+v, want %+v", set, want)
		}
		if got := as[api.Policy](t, h.get(t, "/v1/policies/"+path), http.StatusOK); got != want {
			t.Errorf("read: %+v, want %+v", got, want)
		}
	}
	list := as[api.Policies](t, h.get(t, "/v1/policies"), http.StatusOK)
	if want := []api.Policy{every, other, some}; !slices.Equal(list.Policies, want) { // in byte order: "a%" before "a/"
		t.Errorf("the list is %+v, want %+v", list.Policies, want)
	}
	// Absent fields are the defaults, not what was set before.
	if reset := h.setPolicy(t, "a/b", `{}`); reset != (api.Policy{Prefix: "a/b", Rule: "strict", Authority: "builtin"}) {
		t.Errorf("reset: %+v", reset)
	}
	for _, path := range []string{"", "a/b", "a%252Fb%20c"} {
		deleted := h.send(t, http.MethodDelete, "/v1/policies/"+path, "")
		if deleted.status != http.StatusNoContent || len(deleted.body) != 0 {
			t.Errorf("deleted: %d %s", deleted.status, deleted.body)
		}
		refused(t, h.send(t, http.MethodDelete, "/v1/policies/"+path, ""), api.CodeNotFound)
	}
}

// The policy of the longest prefix wins, and the fence shows it.
func TestPolicyOfName(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "", `{"require_live_lease":true}`)
	h.setPolicy(t, "a", `{"rule":"same_token"}`)
	h.setPolicy(t, "a/b/c", `{"require_lease_id":true}`)
	for name, prefix := range map[string]string{"x": "", "ab": "", "a": "a", "a/b": "a", "a/bc": "a", "a/b/c": "a/b/c", "a/b/c/d": "a/b/c", "a/b/cd": "a"} {
		h.acquire(t, name, "worker")
		if fence := as[api.Fence](t, h.get(t, "/v1/resources/"+name+"/fence"), http.StatusOK); fence.Policy.Prefix != prefix {
			t.Errorf("for %s the policy of %q holds, want that of %q", name, fence.Policy.Prefix, prefix)
		}
	}
}

func TestPolicySameToken(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	as[api.WriteResult](t, h.put(t, lease, 0, "one"), http.StatusCreated)
	refused(t, h.put(t, lease, 0, "two"), api.CodeTokenStale)
	h.setPolicy(t, "job", `{"rule":"same_token"}`)
	as[api.WriteResult](t, h.put(t, lease, 0, "two"), http.StatusOK)
	as[api.WriteResult](t, h.put(t, lease, 0, "three"), http.StatusOK)
	as[api.WriteResult](t, h.put(t, lease, 5, "four"), http.StatusOK)
	refused(t, h.put(t, lease, 4, "five"), api.CodeTokenStale) // numbered writes are held to their numbers
	h.release(t, lease)
	refused(t, h.put(t, lease, 0, "six"), api.CodeTokenStale)
}

func TestPolicyRequireLeaseID(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "", `{"require_lease_id":true}`)
	lease := h.acquire(t, "job", "worker")
	h.unchanged(t, func() { refused(t, h.put(t, lease, 1, "x"), api.CodeLeaseMismatch) })
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("job", "k"), "x", token(lease, 1), "Lease-Id: "+lease.LeaseID), http.StatusCreated)
}

func TestPolicyRequireLiveLease(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.expire(t, lease)
	as[api.WriteResult](t, h.put(t, lease, 1, "late, and nobody has replaced it"), http.StatusCreated)
	h.setPolicy(t, "job", `{"require_live_lease":true}`)
	h.unchanged(t, func() { refused(t, h.put(t, lease, 2, "late"), api.CodeLeaseExpired) })
	h.release(t, lease)
	as[api.WriteResult](t, h.put(t, h.acquire(t, "job", "worker"), 1, "in time"), http.StatusOK)
}

// Tokens that another lock service issues are judged by what was written before, and by nothing else.
func TestPolicyExternal(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "etcd", `{"authority":"external"}`)
	h.unchanged(t, func() {
		refused(t, h.post(t, lockPath("etcd/job", "/acquire"), `{"owner_id":"w"}`), api.CodeInvalidRequest)
	})
	revision := func(number int64) api.Lease { return api.Lease{Lock: "etcd/job", FencingToken: number} }
	as[api.WriteResult](t, h.put(t, revision(1000), 0, "one"), http.StatusCreated)
	as[api.WriteResult](t, h.put(t, revision(1001), 7, "two"), http.StatusOK)
	if stale := refused(t, h.put(t, revision(1000), 9, "late"), api.CodeTokenStale); stale.Reason != "superseded" {
		t.Errorf("the reason is %q", stale.Reason)
	}
	if stale := refused(t, h.put(t, revision(1001), 6, "late"), api.CodeTokenStale); stale.Reason != "reused" {
		t.Errorf("the reason is %q", stale.Reason)
	}
	refused(t, h.send(t, http.MethodPut, recordPath("etcd/job", "k"), "x"), api.CodeTokenRequired)
	fence := as[api.Fence](t, h.get(t, "/v1/resources/etcd/job/fence"), http.StatusOK)
	if fence.LastToken != 1001 || fence.LastSequence != 7 || fence.Policy.Authority != "external" {
		t.Errorf("the fence is %+v", fence)
	}
}

// A lease that is renewed until its policy's max_hold_ms ends there, and its holder learns it from the renewal, the write and the lists.
func TestPolicyMaxHold(t *testing.T) {
	h := newHarness(t, Config{})
	h.setPolicy(t, "job", `{"max_hold_ms":300}`)
	if free := h.acquire(t, "another", "worker"); free.HoldUntil != nil || free.HoldLeftMS != nil {
		t.Errorf("without a policy it is %+v", free)
	}
	lease := h.acquire(t, "job", "worker")
	if lease.HoldUntil == nil || lease.HoldUntil.Sub(lease.GrantedAt.Time) != 300*time.Millisecond || !lease.ExpiresAt.Equal(lease.HoldUntil.Time) ||
		*lease.HoldLeftMS > 300 {
		t.Fatalf("the lease is %+v", lease)
	}
	for {
		renewed := h.post(t, lockPath("job", "/renew"), refOf(lease))
		if renewed.status == http.StatusOK {
			if got := as[api.Lease](t, renewed, http.StatusOK); !got.HoldUntil.Equal(lease.HoldUntil.Time) || *got.HoldLeftMS > *lease.HoldLeftMS {
				t.Errorf("renewed it is %+v, granted it was %+v", got, lease)
			}
			continue
		}
		if lost := refused(t, renewed, api.CodeLeaseLost); lost.Reason != "max_hold" || !strings.Contains(lost.Detail, "max_hold_ms") {
			t.Errorf("the renewal is answered %+v", lost)
		}
		break
	}
	if stale := refused(t, h.put(t, lease, 1, "late"), api.CodeTokenStale); stale.Reason != "max_hold" ||
		!strings.Contains(stale.Detail, "max_hold_ms") {
		t.Errorf("the write is answered %+v", stale)
	}
	if lock := as[api.Lock](t, h.get(t, lockPath("job", "")), http.StatusOK); lock.State != "free" {
		t.Errorf("the lock is %+v", lock)
	}
	list := as[api.LeaseInfos](t, h.get(t, "/v1/leases?lock=job"), http.StatusOK)
	if ended := list.Leases[0]; ended.EndReason != "max_hold" || !ended.EndedAt.Equal(lease.HoldUntil.Time) || !ended.HoldUntil.Equal(lease.HoldUntil.Time) {
		t.Errorf("it is listed as %+v", ended)
	}
	for _, body := range []string{`{"max_hold_ms":99}`, `{"max_hold_ms":0}`, `{"max_hold_ms":31536000001}`, `{"authority":"external","max_hold_ms":1000}`} {
		refused(t, h.send(t, http.MethodPut, "/v1/policies/job", body, jsonType), api.CodeInvalidRequest)
	}
	if none := h.setPolicy(t, "job", `{"max_hold_ms":null}`); none.MaxHoldMS != 0 {
		t.Errorf("without a limit it is %+v", none)
	}
}

// A request_id that comes with other parameters is refused; the value of a campaign is one of them.
func TestRequestIDWithOtherParameters(t *testing.T) {
	h := newHarness(t, Config{})
	as[api.Lease](t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"w","request_id":"r"}`), http.StatusOK)
	as[api.Lease](t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"w","request_id":"r","ttl_ms":30000,"wait_ms":1000}`), http.StatusOK)
	for _, more := range []string{`"mode":"shared"`, `"scope":"subtree"`, `"ttl_ms":1000`, `"metadata":{"a":1}`} {
		refused(t, h.post(t, lockPath("job", "/acquire"), `{"owner_id":"w","request_id":"r",`+more+`}`), api.CodeInvalidRequest)
	}
	const campaign = "/v1/elections/chief/campaign"
	as[api.Term](t, h.post(t, campaign, `{"candidate":"w","request_id":"r","value":1}`), http.StatusOK)
	as[api.Term](t, h.post(t, campaign, `{"candidate":"w","request_id":"r","value":1}`), http.StatusOK)
	refused(t, h.post(t, campaign, `{"candidate":"w","request_id":"r","value":2}`), api.CodeInvalidRequest)
}
