package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

// external is a gateway with external policies: on "etcd", and with the rule same_token on "same".
func external(t *testing.T, config Config) *harness {
	t.Helper()
	h := newHarness(t, config)
	h.setPolicy(t, "etcd", `{"authority":"external"}`)
	h.setPolicy(t, "same", `{"authority":"external","rule":"same_token"}`)
	return h
}

// expectWrites sends writes and checks their answers. Each step is a resource, the header Fencing-Token, and "ok" or
// the code and the reason of the refusal. A step that begins with "delete " deletes the record.
func (h *harness) expectWrites(t *testing.T, steps ...string) {
	t.Helper()
	for _, step := range steps {
		words := strings.Fields(strings.TrimPrefix(step, "delete "))
		resource, header, want := words[0], api.HeaderFencingToken+": "+words[1], strings.Join(words[2:], " ")
		var got answer
		if strings.HasPrefix(step, "delete ") {
			got = h.delete(t, recordPath(resource, "k"), header)
		} else {
			got = h.putWith(t, resource, header)
		}
		said := "ok"
		if got.status >= http.StatusBadRequest {
			problem := as[api.Problem](t, got, got.status)
			said = strings.TrimSpace(string(problem.Code) + " " + problem.Reason)
		}
		if said != want {
			t.Errorf("%q: got %s %s", step, said, got.body)
		}
	}
}

// Under an external policy the first write makes the fence, and numbers only rise: for puts, deletes and transactions.
// There are no leases.
func TestExternalTokens(t *testing.T) {
	h := external(t, Config{})
	expectProblem(t, h.post(t, lockPath("etcd/job", "/acquire"), `{"owner_id":"w"}`), api.CodeInvalidRequest)
	expectProblem(t, h.get(t, "/v1/resources/etcd/job/fence"), api.CodeNotFound)
	h.expectWrites(t,
		"etcd/job 1000 ok", "etcd/job 1000 token_stale reused", "etcd/job 1000.1 ok", "etcd/job 1000.1 ok",
		"etcd/job 999.9 token_stale superseded", "etcd/job 1007.1 ok", "etcd/job 1000.2 token_stale superseded",
		"delete etcd/job 1000.3 token_stale superseded", "delete etcd/job 1007.2 ok", "etcd/job 1007.1 token_stale reused",
		"etcd/job 9007199254740991 ok", "etcd/other 1 ok",
		"same/job 5 ok", "same/job 5 ok", "same/job 4 token_stale superseded", "same/job 6.1 ok", "same/job 6.1 ok",
		"same/job 6 ok", "same/job 5 token_stale superseded")
	if fence := h.fence(t, "etcd/job"); fence.LastToken != api.MaxToken || fence.GrantedToken != 0 ||
		fence.Policy.Prefix != "etcd" {
		t.Errorf("the fence is %+v, want the greatest token and the policy of etcd", fence)
	}

	lease := h.acquire(t, "ours", "worker")
	transact := func(token int64) answer {
		return h.post(t, "/v1/transactions", fmt.Sprintf(`{"fences":[
			{"resource":"etcd/tx","fencing_token":%d,"sequence":1},{"resource":"ours","fencing_token":%d,"sequence":%d}],
			"ops":[{"op":"put","resource":"etcd/tx","key":"k","value":%[1]d},
			{"op":"put","resource":"ours","key":"k","value":1}]}`,
			token, lease.FencingToken, token))
	}
	as[api.TransactionResult](t, transact(20), http.StatusOK)
	expectReason(t, transact(19), api.CodeTokenStale, "superseded")
	if fence := h.fence(t, "ours"); fence.LastSequence != 20 {
		t.Errorf("the fence beside the rejected one is %+v, want it unchanged", fence)
	}
	as[api.TransactionResult](t, transact(21), http.StatusOK)

	h.unchanged(t, func() {
		for _, token := range []string{"9007199254740992", "9007199254740992.1", "18446744073709551616"} {
			refused := expectProblem(t, h.putWith(t, "etcd/job", api.HeaderFencingToken+": "+token), api.CodeInvalidToken)
			if !strings.Contains(refused.Detail, "subtract") {
				t.Errorf("the token %s was refused with %q, want advice", token, refused.Detail)
			}
		}
		if refused := expectProblem(t, transact(1<<53), api.CodeInvalidToken); !strings.Contains(refused.Detail, "subtract") {
			t.Errorf("a token that is too great was refused with %q, want advice", refused.Detail)
		}
	})
}

// An administrator undoes a token that was too great. All gateways admit the holder's writes again, and still reject
// those with a number of a former one. The log says who changed what and why.
func TestSetFence(t *testing.T) {
	log := &logged{}
	h := external(t, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	other := h.another(t, Config{})
	h.expectWrites(t, "etcd/job 41.1 ok", "etcd/job 1767344421480.1 ok")
	for _, gateway := range []*harness{h, other} { // the second rejection of each is from memory
		gateway.expectWrites(t, "etcd/job 42.1 token_stale superseded", "etcd/job 42.1 token_stale superseded")
	}
	set := func(resource, body string) answer {
		return h.send(t, "PUT", "/v1/resources/"+resource+"/fence", body, jsonType)
	}
	got := as[api.FenceSet](t,
		set("etcd/job", `{"last_token":41,"last_sequence":7,"reason":"sent its clock"}`), http.StatusOK)
	if want := (api.FenceSet{Resource: "etcd/job", LastToken: 41, LastSequence: 7, PreviousToken: 1767344421480,
		PreviousSequence: 1}); got != want {
		t.Errorf("the answer is %+v, want %+v", got, want)
	}
	for _, said := range []string{"fence set", "resource=etcd/job", "last_token=41", "last_sequence=7",
		"previous_token=1767344421480", "previous_sequence=1", `reason="sent its clock"`, "address="} {
		if !strings.Contains(log.String(), said) {
			t.Errorf("the log has no %s: %s", said, log.String())
		}
	}
	h.expectWrites(t, "etcd/job 41.7 token_stale reused", "etcd/job 40.1 token_stale superseded")
	if verdict := h.tryGuard(t, "etcd/job", 41, 7); verdict != "token_stale" {
		t.Errorf("a guard with the number that was set is %s, want token_stale: no write had it", verdict)
	}
	h.expectWrites(t, "etcd/job 42.1 ok")
	await.True(t, "the other gateway forgets what it refused",
		func() bool { return other.store.RefusalsRemembered() == 0 })
	other.expectWrites(t, "etcd/job 42.2 ok")
	if verdict := h.tryGuard(t, "etcd/job", 43, 1); verdict != "admitted" {
		t.Errorf("a guard with a greater number is %s, want it admitted", verdict)
	}
	h.expectWrites(t, "etcd/job 42.3 token_stale superseded")

	// Up, on a name that was never written; and to 0, as after a loss of the other service's counter.
	as[api.FenceSet](t, set("etcd/new", `{"last_token":100,"reason":"r"}`), http.StatusOK)
	h.expectWrites(t, "etcd/new 100 token_stale reused", "etcd/new 101 ok")
	as[api.FenceSet](t, set("etcd/new", `{"last_token":0,"reason":"the counter is lost"}`), http.StatusOK)
	if fence := h.fence(t, "etcd/new"); fence.LastToken != 0 {
		t.Errorf("the fence is %+v, want none accepted", fence)
	}
	h.expectWrites(t, "etcd/new 1 ok")

	lease := h.acquire(t, "ours", "worker")
	as[api.WriteResult](t, h.put(t, lease, 1, "x"), http.StatusCreated)
	h.unchanged(t, func() {
		for _, resource := range []string{"ours", "unknown"} {
			refused := expectProblem(t, set(resource, `{"last_token":0,"reason":"r"}`), api.CodeNotExternal)
			if refused.Status != http.StatusConflict {
				t.Errorf("on %s: status %d, want 409", resource, refused.Status)
			}
		}
	})
}

// A token that fencegate granted before a policy made the name's tokens external never writes again, though the fence
// was set below it and the policy is gone: no write is applied twice.
func TestSetFenceAdmitsNoFormerGrant(t *testing.T) {
	h := newHarness(t, Config{})
	own := h.acquire(t, "a/own", "w")
	above := h.acquireAs(t, "b", api.AcquireRequest{OwnerID: "w", Scope: "subtree", TTLMS: &longTTL})
	below := api.Lease{Lock: "b/below", FencingToken: above.FencingToken}
	for _, lease := range []api.Lease{own, below} {
		as[api.WriteResult](t, h.put(t, lease, 5, "x"), http.StatusCreated)
		h.setPolicy(t, lease.Lock, `{"authority":"external"}`)
		path := "/v1/resources/" + lease.Lock + "/fence"
		as[api.FenceSet](t, h.send(t, "PUT", path, `{"last_token":0,"reason":"r"}`, jsonType), http.StatusOK)
		h.delete(t, "/v1/policies/"+lease.Lock)
		expectReason(t, h.put(t, lease, 4, "late"), api.CodeTokenStale, "released")
	}
	h.release(t, own)
	as[api.WriteResult](t, h.put(t, h.acquire(t, "a/own", "w"), 1, "x"), http.StatusOK)
}

// tryGuard is fence.try_guard in a transaction of its own.
func (h *harness) tryGuard(t *testing.T, resource string, token, sequence int64) (verdict string) {
	t.Helper()
	err := h.db.QueryRow(t.Context(), "select verdict from fence.try_guard($1, $2, $3)", resource, token, sequence).
		Scan(&verdict)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}
