package gateway

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// A record is created, replaced, deleted and created again. Its version never returns to an earlier one.
func TestWriteVersions(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "accounts/42", "worker")
	path := recordPath("accounts/42", "notes/today")

	created := h.send(t, http.MethodPut, path, "one", token(lease, 1), "Content-Type: text/plain")
	first := as[api.WriteResult](t, created, http.StatusCreated)
	if first.Resource != "accounts/42" || first.Key != "notes/today" || first.Version != 1 || first.Replayed ||
		first.FencingToken != lease.FencingToken || value(first.Sequence) != int64(1) {
		t.Errorf("the first put returned %s", created.body)
	}
	again := h.send(t, http.MethodPut, path, "one", token(lease, 1), "Content-Type: text/plain")
	if replay := as[api.WriteResult](t, again, http.StatusCreated); !replay.Replayed || replay.Version != 1 {
		t.Errorf("the first put, sent again, returned %s, want a replay of version 1", again.body)
	}
	replaced := h.send(t, http.MethodPut, path, "two", token(lease, 2), "Lease-Id: "+lease.LeaseID)
	second := as[api.WriteResult](t, replaced, http.StatusOK)
	if second.Version != 2 || created.header.Get("ETag") != `"1"` || replaced.header.Get("ETag") != `"2"` {
		t.Errorf("want the ETags \"1\" and \"2\", got %v and %v: %s", created.header, replaced.header, replaced.body)
	}
	deleted := h.delete(t, path, "X-"+token(lease, 3))
	if third := as[api.WriteResult](t, deleted, http.StatusOK); third.Version != 3 || *third.Sequence != 3 {
		t.Errorf("the delete returned %s, want version 3 and sequence 3", deleted.body)
	}
	expectProblem(t, h.get(t, path), api.CodeNotFound)
	h.unchanged(t, func() { expectProblem(t, h.delete(t, path, token(lease, 4)), api.CodeNotFound) })
	again = h.send(t, http.MethodPut, path, "again", token(lease, 4))
	if fourth := as[api.WriteResult](t, again, http.StatusCreated); fourth.Version != 4 {
		t.Errorf("a record created again has version %d, want 4", fourth.Version)
	}

	want := api.Fence{
		Resource: "accounts/42", GrantedToken: lease.FencingToken, Open: true, LastToken: lease.FencingToken, LastSequence: 4,
		Policy: api.Policy{Rule: "strict", Authority: "builtin"},
	}
	if fence := h.fence(t, "accounts/42"); fence != want {
		t.Errorf("the fence is %+v, want %+v", fence, want)
	}
	expectProblem(t, h.get(t, "/v1/resources/accounts/43/fence"), api.CodeNotFound)
}

// An early refusal names the token of the fence as it was last seen, and says that a newer one may be in force.
func TestEarlyRefusalNamesTheTokenLastSeen(t *testing.T) {
	h := newHarness(t, Config{})
	await.True(t, "the engine listens, and remembers refusals", h.engine.Listening)
	first := h.acquire(t, "job", "w1")
	h.release(t, first)
	second := h.acquire(t, "job", "w2")
	byDatabase := expectProblem(t, h.put(t, first, 1, "late"), api.CodeTokenStale)
	h.put(t, second, 1, "x")
	expectProblem(t, h.put(t, first, 1, "late"), api.CodeTokenStale)
	early := expectProblem(t, h.put(t, first, 2, "late"), api.CodeTokenStale)
	if h.engine.RefusedEarly() == 0 {
		t.Fatal("no write was refused early")
	}
	for _, problem := range []api.Problem{byDatabase, early} {
		if *problem.GrantedToken != second.FencingToken {
			t.Errorf("granted_token is %d, want %d", *problem.GrantedToken, second.FencingToken)
		}
	}
	if strings.Contains(byDatabase.Detail, "or a newer one") ||
		!strings.Contains(byDatabase.Detail, "is in force by now") {
		t.Errorf("the database's refusal says %q", byDatabase.Detail)
	}
	if !strings.Contains(early.Detail, "or a newer one is in force by now") {
		t.Errorf("the early refusal says %q", early.Detail)
	}
}

// Values are any bytes. They are returned as they were stored, with their content type.
func TestValues(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	sequence := int64(0)
	for name, stored := range map[string]struct{ kind, value string }{
		"empty":              {"", ""},
		"every byte":         {"application/octet-stream", string(every)},
		"invalid UTF-8":      {"text/plain; charset=utf-8", "\xff\xfe"},
		"1 MiB":              {"image/png", string(random)},
		"JSON as written":    {"application/json", " {\"b\": 1.0, \"a\":\t[1e400, \"\\u0000\"]}\n"},
		"JSON by its suffix": {"application/vnd.thing+json; v=1", `"x"`},
		"JSON null":          {"Application/JSON", "null"},
		"type with quotes":   {`multipart/form-data; boundary="a b"`, "x"},
	} {
		sequence++
		var headers []string
		want := "application/octet-stream"
		if stored.kind != "" {
			headers, want = []string{"Content-Type: " + stored.kind}, stored.kind
		}
		got := h.putKey(t, lease, sequence, name, stored.value, headers...)
		version := as[api.WriteResult](t, got, http.StatusCreated).Version
		read, head := h.get(t, recordPath("job", name)), h.send(t, http.MethodHead, recordPath("job", name), "")
		if string(read.body) != stored.value || len(head.body) != 0 {
			t.Errorf("%s: GET returned %d bytes and HEAD %d, want %d and 0",
				name, len(read.body), len(head.body), len(stored.value))
		}
		for _, got := range []answer{read, head} {
			for header, want := range map[string]string{
				"Content-Type":   want,
				"Content-Length": strconv.Itoa(len(stored.value)),
				"ETag":           `"` + strconv.FormatInt(version, 10) + `"`,
				"Fencing-Token":  api.FencingToken{Token: lease.FencingToken, Sequence: &sequence}.String(),
				"Cache-Control":  "no-cache",
				// These keep a browser from running a stored value on the gateway's origin.
				"Content-Security-Policy": "sandbox; default-src 'none'",
				"X-Content-Type-Options":  "nosniff",
			} {
				if value := got.header.Get(header); got.status != http.StatusOK || value != want {
					t.Errorf("%s: %s returned %d with %s %q, want %q", name, got.request, got.status, header, value, want)
				}
			}
		}
	}
	as[api.WriteResult](t, h.put(t, h.acquire(t, "other", "worker"), 0, "x"), http.StatusCreated)
	unnumbered := h.get(t, recordPath("other", "k")).header.Get("Fencing-Token")
	if want := strconv.FormatInt(h.fence(t, "other").LastToken, 10); unnumbered != want {
		t.Errorf("a record written without a sequence has the Fencing-Token %q, want %q", unnumbered, want)
	}
}

func TestConditionsOfReads(t *testing.T) {
	h, _ := newBusyHarness(t, Config{})
	for condition, status := range map[string]int{
		`If-None-Match: "7" , W/"1"`: http.StatusNotModified, `If-None-Match: *`: http.StatusNotModified,
		`If-None-Match: garbage, "11",`: http.StatusOK, `If-None-Match: `: http.StatusOK,
		`If-Match: *`: http.StatusOK, `If-Match: "9", "1"`: http.StatusOK,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := h.send(t, method, recordPath("job", "k"), "", condition)
			body := "value"
			if status == http.StatusNotModified || method == http.MethodHead {
				body = ""
			}
			if got.status != status || string(got.body) != body || got.header.Get("ETag") != `"1"` {
				t.Errorf("%s with %s: want %d %q, got %d %q with the ETag %s",
					method, condition, status, body, got.status, got.body, got.header.Get("ETag"))
			}
		}
	}
	for _, match := range []string{`"2"`, `W/"1"`, "1", ""} {
		problem := expectProblem(t, h.get(t, recordPath("job", "k"), "If-Match: "+match), api.CodeVersionMismatch)
		if value(problem.Version) != int64(1) {
			t.Errorf("If-Match: %s: the version is %v, want 1", match, value(problem.Version))
		}
	}
}

// A rejected write is answered with its status and the state of the fence, and changes nothing. Which writes are
// rejected, store/postgres compares with a model.
func TestRejectedWrites(t *testing.T) {
	h := newHarness(t, Config{})
	old := h.acquire(t, "job", "old")
	as[api.WriteResult](t, h.put(t, old, 3, "old"), http.StatusCreated)
	h.release(t, old)
	lease := h.acquire(t, "job", "worker")
	h.unchanged(t, func() {
		got := h.put(t, old, 4, "late")
		stale := expectReason(t, got, api.CodeTokenStale, "superseded")
		if stale.Status != http.StatusPreconditionFailed || stale.Retryable || stale.Resource != "job" ||
			value(stale.Token) != old.FencingToken || value(stale.Sequence) != int64(4) ||
			value(stale.LastToken) != old.FencingToken || value(stale.LastSequence) != int64(3) ||
			value(stale.GrantedToken) != lease.FencingToken {
			t.Errorf("a number of the stale write or its fence is missing or wrong: %s", got.body)
		}
		unknown := expectProblem(t, h.put(t, api.Lease{Lock: "job", FencingToken: 1<<53 - 1}, 1, "x"), api.CodeTokenUnknown)
		if value(unknown.Token) != int64(1<<53-1) || value(unknown.GrantedToken) != lease.FencingToken {
			t.Errorf("token or granted_token is missing or wrong: %+v", unknown)
		}
		expectProblem(t, h.putWith(t, "job", token(lease, 1), "Lease-Id: "+uuid.NewString()), api.CodeLeaseMismatch)
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			missing := expectProblem(t, h.send(t, method, recordPath("job", "k"), "x"), api.CodeTokenRequired)
			if missing.Status != http.StatusPreconditionRequired || missing.Token != nil {
				t.Errorf("%s without a token: want status 428 and no token, got %+v", method, missing)
			}
			for key, conditions := range map[string][]string{"k": {`If-None-Match: *`, `If-Match: "2"`}, "none": {`If-Match: *`}} {
				for _, condition := range conditions {
					got := h.send(t, method, recordPath("job", key), "x", token(lease, 1), condition)
					problem := expectProblem(t, got, api.CodeVersionMismatch)
					if want := map[string]int64{"k": 1}[key]; value(problem.Version) != want {
						t.Errorf("%s %s: want the version %d, got %s", method, condition, want, got.body)
					}
				}
			}
		}
	})
	upper := "Lease-Id: " + strings.ToUpper(lease.LeaseID) // it is compared as a UUID
	as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1), upper, `If-Match: "1"`), http.StatusOK)
	as[api.WriteResult](t, h.putKey(t, lease, 2, "new", "x", `If-None-Match: *`), http.StatusCreated)
	other := h.acquire(t, "other", "worker")
	unnumbered := h.put(t, other, 0, "x")
	as[api.WriteResult](t, unnumbered, http.StatusCreated)
	reused := expectReason(t, h.put(t, other, 0, "x"), api.CodeTokenStale, "reused")
	if strings.Contains(string(unnumbered.body), "sequence") || reused.Sequence != nil {
		t.Errorf("writes without a sequence returned %s and %+v, want no sequence", unnumbered.body, reused)
	}
	head := h.send(t, http.MethodHead, recordPath("job", "none"), "")
	if head.status != http.StatusNotFound || head.header.Get("Content-Type") != api.ProblemContentType || len(head.body) != 0 {
		t.Errorf("HEAD returned %d %v with %d bytes, want the headers of a problem", head.status, head.header, len(head.body))
	}
}

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
