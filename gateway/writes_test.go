package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
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

// A stale token is rejected with the reason and the state of the fence, even before the new holder writes (P3).
func TestTokenStale(t *testing.T) {
	h := newHarness(t, Config{})
	old := h.acquire(t, "job", "old")
	as[api.WriteResult](t, h.put(t, old, 3, "old"), http.StatusCreated)
	stale := func(sequence int64, reason string) {
		t.Helper()
		h.unchanged(t, func() {
			got := h.put(t, old, sequence, "late")
			problem := expectReason(t, got, api.CodeTokenStale, reason)
			if problem.Retryable || problem.Resource != "job" ||
				value(problem.Token) != old.FencingToken || value(problem.Sequence) != sequence {
				t.Errorf("want not retryable, resource job, token %d and sequence %d: %s", old.FencingToken, sequence, got.body)
			}
			if value(problem.LastToken) != old.FencingToken || value(problem.LastSequence) != int64(3) ||
				problem.GrantedToken == nil || *problem.GrantedToken < old.FencingToken {
				t.Errorf("last_token, last_sequence or granted_token is missing or wrong: %s", got.body)
			}
		})
	}
	stale(2, "reused")
	stale(3, "reused")
	h.release(t, old)
	stale(4, "released")
	newer := h.acquire(t, "job", "newer")
	stale(4, "superseded")
	as[api.WriteResult](t, h.put(t, newer, 1, "new"), http.StatusOK)
	if got := h.get(t, recordPath("job", "k")); string(got.body) != "new" {
		t.Errorf("the record is %q, want new", got.body)
	}
}

// Other rejections have their codes, and the tokens of the fence where they concern them (P5).
func TestOtherRejections(t *testing.T) {
	h := newHarness(t, Config{})
	lease, other := h.acquire(t, "job", "worker"), h.acquire(t, "other", "worker")
	h.unchanged(t, func() {
		unknown := expectProblem(t, h.put(t, api.Lease{Lock: "job", FencingToken: 1<<53 - 1}, 1, "x"), api.CodeTokenUnknown)
		if value(unknown.Token) != int64(1<<53-1) || value(unknown.GrantedToken) != lease.FencingToken {
			t.Errorf("token or granted_token is missing or wrong: %+v", unknown)
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			missing := expectProblem(t, h.send(t, method, recordPath("job", "k"), "x"), api.CodeTokenRequired)
			if missing.Status != http.StatusPreconditionRequired || missing.Token != nil {
				t.Errorf("%s without a token: want status 428 and no token, got %+v", method, missing)
			}
		}
		expectProblem(t, h.putWith(t, "job", token(lease, 1), "Lease-Id: "+uuid.NewString()), api.CodeLeaseMismatch)
	})
	upper := "Lease-Id: " + strings.ToUpper(lease.LeaseID) // it is compared as a UUID
	as[api.WriteResult](t, h.putWith(t, "job", token(lease, 1<<53-1), upper), http.StatusCreated)
	unnumbered := h.put(t, other, 0, "x")
	as[api.WriteResult](t, unnumbered, http.StatusCreated)
	stale := expectReason(t, h.put(t, other, 0, "x"), api.CodeTokenStale, "reused")
	if strings.Contains(string(unnumbered.body), "sequence") || stale.Sequence != nil {
		t.Errorf("writes without a sequence returned %s and %+v, want no sequence", unnumbered.body, stale)
	}
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
	if h.store.RefusedEarly() == 0 {
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
