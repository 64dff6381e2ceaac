package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

// expectLimited checks that a request was refused because its principal has as much as one may have.
func expectLimited(t *testing.T, got answer) {
	t.Helper()
	if problem := expectProblem(t, got, api.CodeRateLimited); got.header.Get("Retry-After") == "" ||
		!problem.Retryable || problem.Outcome != api.OutcomeNotApplied {
		t.Errorf("answered %s %s, want a pause and not_applied", got.header, got.body)
	}
}

// TestPoliciesOfOnePrincipal checks that administrators of some names can fill neither the table of policies nor more
// than their share of it. An administrator of all names and another one of some still set policies.
func TestPoliciesOfOnePrincipal(t *testing.T) {
	h, admin := newGuarded(t)
	root, jobs := h.by(admin), h.by(h.key(t, "jobs", "admin:jobs"))
	others := h.by(h.key(t, "others", "admin:others"))
	put := func(h client, prefix string) answer { return h.send(t, "PUT", "/v1/policies/"+prefix, `{}`, jsonType) }
	set := func(h client, prefix string) {
		t.Helper()
		as[api.Policy](t, put(h, prefix), http.StatusOK)
	}
	set(jobs, "jobs/first")
	h.exec(t, "insert into fence.policies (prefix, principal) select 'jobs/' || n, 'jobs' from generate_series(1, 999) n")
	expectLimited(t, put(jobs, "jobs/one-more"))
	set(jobs, "jobs/first") // it has that one already
	set(others, "others/first")

	h.exec(t, "insert into fence.policies (prefix, principal) select 'p/' || n, n::text from generate_series(1, 8000) n")
	expectLimited(t, put(others, "others/one-more"))
	set(root, "one-more")
}

// TestActionsOfOnePrincipal checks that an administrator of some names who fills the audit log is refused further
// actions, which then have no effect. Others act, and no entry is lost.
func TestActionsOfOnePrincipal(t *testing.T) {
	h, admin := newGuarded(t)
	root, jobs := h.by(admin), h.by(h.key(t, "jobs", "admin,lock:jobs"))
	others := h.by(h.key(t, "others", "admin:others"))
	lease := jobs.acquire(t, "jobs/1", "w")
	as[api.Policy](t, jobs.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
	h.exec(t, `
		insert into fence.audit (principal, address, action, name, details)
		select 'jobs', '192.0.2.1', 'policy_set', 'jobs', '{}' from generate_series(2, 10000)`)
	for name, got := range map[string]answer{
		"PUT a policy":    jobs.send(t, "PUT", "/v1/policies/jobs", `{"require_lease_id":true}`, jsonType),
		"DELETE a policy": jobs.delete(t, "/v1/policies/jobs"),
		"break a lease":   jobs.post(t, lockPath("jobs/1", "/break"), `{"reason":"test"}`),
		"set a fence":     jobs.send(t, "PUT", "/v1/resources/jobs/1/fence", `{"last_token":1,"last_sequence":0,"reason":"test"}`, jsonType),
	} {
		t.Log(name)
		expectLimited(t, got)
	}
	jobs.release(t, lease)
	as[api.Policy](t, others.send(t, "PUT", "/v1/policies/others", `{}`, jsonType), http.StatusOK)
	as[api.Policy](t, root.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
	h.exec(t, "update fence.audit set at = at - interval '1 day' where principal = 'jobs' and id % 1000 = 0")
	as[api.Policy](t, jobs.send(t, "PUT", "/v1/policies/jobs", `{}`, jsonType), http.StatusOK)
}

// TestLastPlacesAreReserved checks that callers with a scope on some names leave the last streams and the last waits of
// a gateway to one with the scope on all.
func TestLastPlacesAreReserved(t *testing.T) {
	h := newGateway(t, Config{WatchesMax: 10, WaitingMax: 10}, patientDatabase(t))
	h.guard(t)
	root, jobs := h.by(h.key(t, "root", "observe,lock:")), h.by(h.key(t, "jobs", "observe,lock:job"))
	lease := root.acquire(t, "job", "holder")
	waiting := []<-chan answer{}
	for i := range 9 {
		jobs.open(t, lockPath("job", "/watch"))
		waiting = append(waiting, jobs.waitInQueue(t, "job", api.AcquireRequest{OwnerID: fmt.Sprint(i)}))
	}
	expectUnavailable(t, jobs.get(t, lockPath("job", "/watch")), api.OutcomeNotApplied)
	expectUnavailable(t, jobs.post(t, lockPath("job", "/acquire"), `{"owner_id":"w","wait_ms":1}`),
		api.OutcomeNotApplied)
	root.open(t, lockPath("job", "/watch"))
	waiting = append(waiting, root.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "root"}))
	root.release(t, lease)
	for _, each := range waiting {
		jobs.release(t, as[api.Lease](t, <-each, http.StatusOK))
	}
}
