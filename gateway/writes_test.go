package gateway

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

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
