package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/gateway/api"
)

func TestWriteLife(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "accounts/42", "worker")
	path := recordPath("accounts/42", "notes/today")

	created := h.send(t, http.MethodPut, path, "one", token(lease, 1), "Content-Type: text/plain")
	first := as[api.WriteResult](t, created, http.StatusCreated)
	if first.Resource != "accounts/42" || first.Key != "notes/today" || first.Version != 1 || first.FencingToken != lease.FencingToken ||
		first.Sequence == nil || *first.Sequence != 1 || first.Replayed || created.header.Get("ETag") != `"1"` {
		t.Errorf("created: %s, ETag %s", created.body, created.header.Get("ETag"))
	}
	replaced := h.send(t, http.MethodPut, path, "two", token(lease, 2), "Lease-Id: "+lease.LeaseID)
	if second := as[api.WriteResult](t, replaced, http.StatusOK); second.Version != 2 || replaced.header.Get("ETag") != `"2"` {
		t.Errorf("replaced: %s", replaced.body)
	}
	deleted := h.send(t, http.MethodDelete, path, "", "X-"+token(lease, 3))
	if third := as[api.WriteResult](t, deleted, http.StatusOK); third.Version != 3 || *third.Sequence != 3 {
		t.Errorf("deleted: %s", deleted.body)
	}
	refused(t, h.get(t, path), api.CodeNotFound)
	h.unchanged(t, func() {
		refused(t, h.send(t, http.MethodDelete, path, "", token(lease, 4)), api.CodeNotFound)
	})
	again := h.send(t, http.MethodPut, path, "again", token(lease, 4))
	if fourth := as[api.WriteResult](t, again, http.StatusCreated); fourth.Version != 4 {
		t.Errorf("a record made again has version %d, want 4", fourth.Version)
	}

	want := api.Fence{
		Resource: "accounts/42", GrantedToken: lease.FencingToken, Open: true, LastToken: lease.FencingToken, LastSequence: 4,
		Policy: api.Policy{Rule: "strict", Authority: "builtin"},
	}
	if fence := as[api.Fence](t, h.get(t, "/v1/resources/accounts/42/fence"), http.StatusOK); fence != want {
		t.Errorf("the fence is %+v, want %+v", fence, want)
	}
	refused(t, h.get(t, "/v1/resources/accounts/43/fence"), api.CodeNotFound)
}

// A plain token admits exactly one write.
func TestUnnumberedWrite(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	got := h.put(t, lease, 0, "one")
	if result := as[api.WriteResult](t, got, http.StatusCreated); result.Sequence != nil || strings.Contains(string(got.body), "sequence") {
		t.Errorf("a write without a number got one: %s", got.body)
	}
	if stale := refused(t, h.put(t, lease, 0, "one"), api.CodeTokenStale); stale.Reason != "reused" || stale.Sequence != nil {
		t.Errorf("stale: %+v", stale)
	}
}

func TestReplay(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	first := as[api.WriteResult](t, h.put(t, lease, 7, "one"), http.StatusCreated)
	retried := func() {
		t.Helper()
		again := as[api.WriteResult](t, h.put(t, lease, 7, "one"), http.StatusCreated)
		if !again.Replayed || again.Version != first.Version {
			t.Errorf("the retry of %+v got %+v", first, again)
		}
	}
	h.unchanged(t, retried)
	h.unchanged(t, func() { refused(t, h.put(t, lease, 7, "other content"), api.CodeTokenStale) })
	h.release(t, lease)
	next := h.acquire(t, "job", "next")
	h.unchanged(t, retried) // it was applied; that a newer lease has been granted since changes nothing about it
	as[api.WriteResult](t, h.put(t, next, 1, "two"), http.StatusOK)
	refused(t, h.put(t, lease, 7, "one"), api.CodeTokenStale) // no longer the last one
}

func TestTokenStale(t *testing.T) {
	h := newHarness(t, Config{})
	old := h.acquire(t, "job", "old")
	as[api.WriteResult](t, h.put(t, old, 3, "old"), http.StatusCreated)
	stale := func(lease api.Lease, sequence int64, reason string) {
		t.Helper()
		h.unchanged(t, func() {
			got := h.put(t, lease, sequence, "late")
			problem := refused(t, got, api.CodeTokenStale)
			switch {
			case problem.Reason != reason || problem.Retryable || problem.Resource != "job":
				t.Errorf("reason %q, retryable %v, resource %q, want reason %q: %s", problem.Reason, problem.Retryable, problem.Resource, reason, got.body)
			case problem.Token == nil || *problem.Token != lease.FencingToken, problem.Sequence == nil || *problem.Sequence != sequence:
				t.Errorf("token or sequence is not what was presented: %s", got.body)
			case problem.LastToken == nil || *problem.LastToken != old.FencingToken, problem.LastSequence == nil || *problem.LastSequence != 3:
				t.Errorf("last_token or last_sequence is wrong: %s", got.body)
			case problem.GrantedToken == nil || *problem.GrantedToken < old.FencingToken:
				t.Errorf("granted_token is wrong: %s", got.body)
			}
		})
	}
	stale(old, 2, "reused")
	stale(old, 3, "reused")
	h.release(t, old)
	stale(old, 4, "released")
	newer := h.acquire(t, "job", "newer")
	stale(old, 4, "superseded") // before the new holder has written anything (P3)
	as[api.WriteResult](t, h.put(t, newer, 1, "new"), http.StatusOK)
	if got := h.get(t, recordPath("job", "k")); string(got.body) != "new" {
		t.Errorf("the record is %q", got.body)
	}
}

func TestTokenUnknown(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	other := h.acquire(t, "other", "worker")
	h.unchanged(t, func() {
		for _, lease := range []api.Lease{
			{Lock: "job", FencingToken: 1<<53 - 1},
			{Lock: "job", FencingToken: other.FencingToken}, // granted, but on another name
			{Lock: "nothing was granted here", FencingToken: lease.FencingToken},
		} {
			got := h.put(t, lease, 1<<53-1, "forged")
			unknown := refused(t, got, api.CodeTokenUnknown)
			if unknown.Token == nil || *unknown.Token != lease.FencingToken || unknown.GrantedToken == nil || *unknown.GrantedToken >= lease.FencingToken {
				t.Errorf("token or granted_token is wrong: %s", got.body)
			}
		}
	})
	as[api.WriteResult](t, h.put(t, lease, 1, "honest"), http.StatusCreated) // and nobody was shut out by it (P5)
}

func TestTokenRequired(t *testing.T) {
	h := newHarness(t, Config{})
	h.acquire(t, "job", "worker")
	h.unchanged(t, func() {
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			missing := refused(t, h.send(t, method, recordPath("job", "k"), "x"), api.CodeTokenRequired)
			if missing.Status != http.StatusPreconditionRequired || missing.Token != nil {
				t.Errorf("missing: %+v", missing)
			}
		}
	})
}

func TestLeaseIDOfWrite(t *testing.T) {
	h := newHarness(t, Config{})
	lease := h.acquire(t, "job", "worker")
	h.unchanged(t, func() {
		refused(t, h.send(t, http.MethodPut, recordPath("job", "k"), "x", token(lease, 1), "Lease-Id: "+uuid.NewString()), api.CodeLeaseMismatch)
	})
	as[api.WriteResult](t, h.send(t, http.MethodPut, recordPath("job", "k"), "x", token(lease, 1), "Lease-Id: "+strings.ToUpper(lease.LeaseID)), http.StatusCreated)
}
