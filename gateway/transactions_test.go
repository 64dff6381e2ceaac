package gateway

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

func writeToken(lease api.Lease, sequence int64) api.WriteToken {
	return api.WriteToken{
		Resource: lease.Lock, FencingToken: &lease.FencingToken, Sequence: &sequence, LeaseID: &lease.LeaseID,
	}
}

func putOp(lease api.Lease, key, value string) api.Op {
	return api.Op{Op: "put", Resource: lease.Lock, Key: key, Value: json.RawMessage(value)}
}

func deleteOp(lease api.Lease, key string) api.Op {
	return api.Op{Op: "delete", Resource: lease.Lock, Key: key}
}

// ifVersion adds a condition to an operation.
func ifVersion(op api.Op, version int64) api.Op {
	op.IfVersion = &version
	return op
}

// A transaction applies its operations together and returns their versions. Sent again, it is a replay.
func TestTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	from, to := h.acquire(t, "accounts/1", "clerk"), h.acquire(t, "accounts/2", "clerk")
	as[api.WriteResult](t, h.put(t, from, 1, "old"), http.StatusCreated)

	bytes := base64.StdEncoding.EncodeToString([]byte("\x00\xff"))
	request := api.TransactionRequest{
		Fences: []api.WriteToken{writeToken(from, 2), writeToken(to, 1)},
		Ops: []api.Op{
			putOp(to, "balance", ` {"b": 1.0, "a":null} `),
			ifVersion(deleteOp(from, "k"), 1),
			ifVersion(putOp(from, "balance", "-10"), 0),
			{Op: "put", Resource: to.Lock, Key: "photo", ValueBase64: &bytes, ContentType: "image/png"},
		},
	}
	result := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
	want := []api.OpResult{
		{Op: "put", Resource: "accounts/2", Key: "balance", Version: 1},
		{Op: "delete", Resource: "accounts/1", Key: "k", Version: 2},
		{Op: "put", Resource: "accounts/1", Key: "balance", Version: 2},
		{Op: "put", Resource: "accounts/2", Key: "photo", Version: 1},
	}
	if !reflect.DeepEqual(result.Results, want) || result.Replayed {
		t.Errorf("the transaction returned %+v, want %+v", result, want)
	}
	expectProblem(t, h.get(t, recordPath("accounts/1", "k")), api.CodeNotFound)
	h.expectRecord(t, recordPath("accounts/2", "photo"), "\x00\xff", "image/png")
	h.expectRecord(t, recordPath("accounts/2", "balance"), `{"b":1.0,"a":null}`, "application/json")

	h.unchanged(t, func() {
		again := as[api.TransactionResult](t, h.transact(t, request), http.StatusOK)
		if !again.Replayed || !reflect.DeepEqual(again.Results, want) {
			t.Errorf("the transaction sent again returned %+v, want a replay of %+v", again, want)
		}
		request.Ops[0].Value = json.RawMessage("2")
		expectProblem(t, h.transact(t, request), api.CodeTokenStale)
	})
}

// expectRecord checks the value and the content type of a record.
func (c client) expectRecord(t testing.TB, path, value, contentType string) {
	t.Helper()
	if got := c.get(t, path); string(got.body) != value || got.header.Get("Content-Type") != contentType {
		t.Errorf("%s is %q of type %s, want %q of type %s", path, got.body, got.header.Get("Content-Type"), value,
			contentType)
	}
}

// expectWrites sends writes and checks their answers. Each step is a resource, the header Fencing-Token, and "ok" or
// the code and the reason of the refusal.
func (h *harness) expectWrites(t *testing.T, steps ...string) {
	t.Helper()
	for _, step := range steps {
		words := strings.Fields(step)
		want, said := strings.Join(words[2:], " "), "ok"
		got := h.putWith(t, words[0], api.HeaderFencingToken+": "+words[1])
		if got.status >= http.StatusBadRequest {
			problem := as[api.Problem](t, got, got.status)
			said = strings.TrimSpace(string(problem.Code) + " " + problem.Reason)
		}
		if said != want {
			t.Errorf("%q: got %s %s", step, said, got.body)
		}
	}
}

// An administrator undoes a token that was too great. All gateways admit the holder's writes again, and still reject
// those with a number of a former one. The log says who changed what and why.
func TestSetFence(t *testing.T) {
	log := &logged{}
	h := newHarness(t, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	h.setPolicy(t, "etcd", `{"authority":"external"}`)
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
		func() bool { return other.engine.RefusalsRemembered() == 0 })
	other.expectWrites(t, "etcd/job 42.2 ok")
	if verdict := h.tryGuard(t, "etcd/job", 43, 1); verdict != "admitted" {
		t.Errorf("a guard with a greater number is %s, want it admitted", verdict)
	}
	h.expectWrites(t, "etcd/job 42.3 token_stale superseded")

	// Up, on a name that was never written; and to 0, as after a loss of the other service's counter.
	as[api.FenceSet](t, set("etcd/new", `{"last_token":100,"reason":"r"}`), http.StatusOK)
	h.expectWrites(t, "etcd/new 100 token_stale reused", "etcd/new 101 ok")
	as[api.FenceSet](t, set("etcd/new", `{"last_token":0,"reason":"the counter is lost"}`), http.StatusOK)
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

// A transaction with a rejected token or operation changes nothing. The answer says which it was.
func TestRejectedTransaction(t *testing.T) {
	h := newHarness(t, Config{})
	mine, late := h.acquire(t, "mine", "worker"), h.acquire(t, "late", "worker")
	h.release(t, late)
	current := h.acquire(t, "late", "other")
	good, fine := writeToken(mine, 6), putOp(mine, "fine", "1")
	for name, c := range map[string]struct {
		fences   []api.WriteToken
		op       api.Op
		code     api.Code
		at       any
		resource string
	}{
		"stale and unused":  {[]api.WriteToken{good, writeToken(late, 1)}, putOp(mine, "k", "1"), api.CodeTokenStale, nil, "late"},
		"without a token":   {[]api.WriteToken{{Resource: "mine"}}, putOp(mine, "k", "1"), api.CodeTokenRequired, nil, "mine"},
		"no write token":    {[]api.WriteToken{good}, putOp(current, "k", "1"), api.CodeTokenRequired, 1, "late"},
		"other version":     {[]api.WriteToken{good}, ifVersion(putOp(mine, "k", "1"), 7), api.CodeVersionMismatch, 1, "mine"},
		"nothing to delete": {[]api.WriteToken{good}, deleteOp(mine, "nothing"), api.CodeNotFound, nil, ""},
	} {
		h.unchanged(t, func() {
			got := h.transact(t, api.TransactionRequest{Fences: c.fences, Ops: []api.Op{fine, c.op}})
			problem := expectProblem(t, got, c.code)
			if value(problem.Op) != c.at || problem.Resource != c.resource {
				t.Errorf("%s: want op %v and resource %q, got %s", name, c.at, c.resource, got.body)
			}
		})
	}
	both := api.TransactionRequest{Fences: []api.WriteToken{good, writeToken(current, 1)}, Ops: []api.Op{fine}}
	as[api.TransactionResult](t, h.transact(t, both), http.StatusOK)
	expectProblem(t, h.put(t, current, 1, "x"), api.CodeTokenStale) // the transaction raised all fences of its tokens
}
