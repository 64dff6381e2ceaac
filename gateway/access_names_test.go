package gateway

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
)

// withHeader adds a header to every request.
type withHeader struct {
	http.RoundTripper

	header string
}

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	addHeaders(r.Header, h.header)
	return h.RoundTripper.RoundTrip(r)
}

// by is a client that shows a credential.
func (c client) by(credential string) client {
	return client{base: c.base, http: &http.Client{Transport: withHeader{c.http.Transport, credential}}}
}

// occupy makes one of everything that lists show, on names below the prefix. It returns a lease, and a function that
// grants its lock to the waiter.
func (h *harness) occupy(t *testing.T, by client, prefix string) (lease api.Lease, end func()) {
	t.Helper()
	lease = by.acquire(t, prefix+"/1", prefix+"-holder")
	as[api.WriteResult](t, by.put(t, lease, 1, "v"), http.StatusCreated)
	expectProblem(t, by.put(t, lease, 1, "other"), api.CodeTokenStale)
	h.record(t)
	waiting := by.waitInQueue(t, prefix+"/1", api.AcquireRequest{OwnerID: prefix + "/1"})
	by.acquire(t, prefix+"/e", prefix+"-leader")
	by.setPolicy(t, prefix, `{"rule":"same_token"}`)
	return lease, func() {
		t.Helper()
		by.release(t, lease)
		granted(t, waiting)
	}
}

// TestListsHideOtherNames checks that what a principal gets in lists, counts and streams does not change by anything on
// names that it may not see.
func TestListsHideOtherNames(t *testing.T) {
	h, admin := newGuarded(t)
	root, eu := h.by(admin), h.by(h.key(t, "eu", "all:eu"))
	lease, end := h.occupy(t, root, "eu")
	defer end()
	paths := []string{
		"/v1/locks?count=true", "/v1/locks?sort=fencing_token&order=desc", "/v1/locks?state=held&contains=e&sort=queue",
		"/v1/leases", "/v1/leases?state=running&limit=1", "/v1/waits", "/v1/waits?owner_id=eu/1", "/v1/policies", "/v1/rejections",
		"/v1/rejections?sort=last_seen", "/v1/audit", "/v1/rejections/summary",
	}
	before := map[string][]byte{}
	for _, path := range paths {
		got := eu.get(t, path)
		if got.status != http.StatusOK || !bytes.Contains(got.body, []byte("eu")) {
			t.Errorf("%s was answered %d: %s", path, got.status, got.body)
		}
		before[path] = got.body
	}
	stream := eu.open(t, "/v1/rejections/stream")
	_, endLonger := h.occupy(t, root, "eux")
	defer endLonger()
	_, endOther := h.occupy(t, root, "us")
	defer endOther()
	for _, path := range paths {
		if got := eu.get(t, path); !bytes.Equal(got.body, before[path]) {
			t.Errorf("%s was answered\n%s\nand with more on other names\n%s", path, before[path], got.body)
		}
	}
	expectProblem(t, root.put(t, lease, 1, "again another"), api.CodeTokenStale)
	h.record(t)
	if event := dataOf[api.Rejection](t, stream.next(t, api.EventRejection)); event.Resource != "eu/1" {
		t.Errorf("the first event is of %s, want eu/1", event.Resource)
	}

	for _, path := range []string{
		"/v1/leases?lock=", "/v1/rejections?resource=", "/v1/locks?prefix=", "/v1/waits?lock=", "/v1/waits?owner_id=",
	} {
		there, missing := eu.get(t, path+"us/1"), eu.get(t, path+"us/2")
		if there.status != missing.status || !bytes.Equal(there.body, missing.body) {
			t.Errorf("%s was answered %d %s for a lock that exists, and %d %s for another one", path, there.status, there.body,
				missing.status, missing.body)
		}
	}
}

// TestEachNameIsJudged checks that each write of a bulk request and each name of a transaction needs the scope, and that
// nothing of a refused transaction is applied.
func TestEachNameIsJudged(t *testing.T) {
	h, admin := newGuarded(t)
	root, eu := h.by(admin), h.by(h.key(t, "eu", "write:eu"))
	in, out := root.acquire(t, "eu/1", "w"), root.acquire(t, "us/1", "w")
	missing := out
	missing.Lock = "us/2"
	verdicts := eu.bulk(t, putLine(in, 1, "k", "1")+putLine(out, 1, "k", "1")+putLine(missing, 1, "k", "1"))
	if len(verdicts) != 3 || verdicts[0].Status != http.StatusCreated || verdicts[1].Code != api.CodeForbidden ||
		verdicts[2].Code != api.CodeForbidden || verdicts[1].Problem.Detail != verdicts[2].Problem.Detail {
		t.Errorf("the verdicts are %+v, want one that is admitted and two that are forbidden alike", verdicts)
	}
	both := api.TransactionRequest{
		Fences: []api.WriteToken{
			{Resource: "eu/1", FencingToken: &in.FencingToken, Sequence: new(int64(2))},
			{Resource: "us/1", FencingToken: &out.FencingToken, Sequence: new(int64(2))},
		},
		Ops: []api.Op{{Op: "put", Resource: "eu/1", Key: "k", Value: []byte("2")}},
	}
	expectProblem(t, eu.transact(t, both), api.CodeForbidden)
	both.Fences, both.Ops[0].Resource = both.Fences[:1], "us/1"
	expectProblem(t, eu.transact(t, both), api.CodeForbidden)
	if fence := root.fence(t, "eu/1"); fence.LastSequence != 1 {
		t.Errorf("the fence is at %d, want 1: the transactions were refused", fence.LastSequence)
	}
}

// TestRefusedAcquiresHideOtherNames checks that an acquire that is refused does not say who holds and waits for locks
// that the principal may not see, and says it of others.
func TestRefusedAcquiresHideOtherNames(t *testing.T) {
	h, admin := newGuarded(t)
	root := h.by(admin)
	root.acquireAs(t, "ap", api.AcquireRequest{OwnerID: "boss", TTLMS: &longTTL, Scope: "subtree"})
	for grant, hidden := range map[string]bool{"all:ap/1": true, "lock:ap": false} {
		got := h.by(h.key(t, "p", grant)).post(t, lockPath("ap/1", "/acquire"), `{"owner_id":"w"}`)
		problem := expectProblem(t, got, api.CodeLockHeld)
		if (problem.Holder == nil) != hidden || bytes.Contains(got.body, []byte("boss")) == hidden {
			t.Errorf("with %s: answered %s, want the holder hidden: %t", grant, got.body, hidden)
		}
	}

	root.acquire(t, "d/1", "a")
	holder := h.by(h.key(t, "p", "lock:d"))
	blocking := holder.acquire(t, "d/2", "b")
	waiting := root.waitInQueue(t, "d/2", api.AcquireRequest{OwnerID: "a"})
	for grant, hidden := range map[string]bool{"all:d/1": true, "lock:d": false} {
		got := h.by(h.key(t, "p", grant)).post(t, lockPath("d/1", "/acquire"), `{"owner_id":"b","wait_ms":60000}`)
		problem := expectProblem(t, got, api.CodeDeadlock)
		shown := slices.Contains(problem.Cycle, api.Wait{OwnerID: "a", Principal: "admin", Lock: "d/2"})
		if shown == hidden || len(problem.Cycle) != 2 || problem.Cycle[0] != (api.Wait{OwnerID: "b", Principal: "p", Lock: "d/1"}) {
			t.Errorf("with %s: the cycle is %v, want the other wait hidden: %t", grant, problem.Cycle, hidden)
		}
	}
	holder.release(t, blocking)
	granted(t, waiting)
}

// TestPrincipalsOfLeases checks that a lease and a session show who has them, also a lease that was waited for, and that
// another principal with the same owner_id can't take over a waiter by its request_id. That it can't take over a lease,
// the conformance suite of providers checks.
func TestPrincipalsOfLeases(t *testing.T) {
	h, admin := newGuarded(t)
	root, a, b := h.by(admin), h.by(h.key(t, "a", "all:")), h.by(h.key(t, "b", "all:"))
	request := api.AcquireRequest{OwnerID: "w", TTLMS: &longTTL, RequestID: new("r")}
	lease := a.acquireAs(t, "job", request)
	waits := request
	waits.RequestID = new("later")
	waiting := b.waitInQueue(t, "job", waits)
	if lock := root.lock(t, "job"); lock.Queue[0].Principal != "b" {
		t.Errorf("the queue is %+v, want the principal b", lock.Queue)
	}
	graph := as[api.Waits](t, root.get(t, "/v1/waits"), http.StatusOK)
	if of := graph.Waits[0]; of.Principal != "b" || of.For[0].Principal != "a" {
		t.Errorf("the wait is %+v, want that of the principal b for the one of a", of)
	}
	held := expectProblem(t, b.post(t, lockPath("job", "/acquire"), `{"owner_id":"x"}`), api.CodeLockHeld)
	if held.Holder.Principal != "a" {
		t.Errorf("the holder is %+v, want the principal a", held.Holder)
	}
	b.createSession(t, "w", time.Minute)

	expectProblem(t, a.post(t, lockPath("job", "/acquire"), encode(waits)), api.CodeInvalidRequest)
	if lock := root.lock(t, "job"); lock.Holders[0].Principal != "a" {
		t.Errorf("the holder is %+v, want the principal a", lock.Holders)
	}
	sessions := as[api.SessionInfos](t, root.get(t, "/v1/sessions"), http.StatusOK).Sessions
	if len(sessions) != 1 || sessions[0].Principal != "b" {
		t.Errorf("the sessions are %+v, want one of the principal b", sessions)
	}
	a.release(t, lease)
	granted(t, waiting)
	leases := as[api.LeaseInfos](t, root.get(t, "/v1/leases"), http.StatusOK).Leases
	if len(leases) != 2 || leases[0].Principal != "b" || leases[1].Principal != "a" {
		t.Errorf("the leases are %+v, want those of the principals b and a", leases)
	}
}

// TestPrincipalsOfRejections checks that a rejection has the principal that sent the write, and is one group for each.
func TestPrincipalsOfRejections(t *testing.T) {
	h, admin := newGuarded(t)
	root, a, b := h.by(admin), h.by(h.key(t, "a", "all:")), h.by(h.key(t, "b", "all:"))
	lease := a.acquire(t, "job", "w")
	a.release(t, lease)
	for _, zombie := range []client{a, a, b} {
		expectProblem(t, zombie.put(t, lease, 1, "v"), api.CodeTokenStale)
	}
	if verdicts := b.bulk(t, putLine(lease, 1, "k", "1")); len(verdicts) != 1 || verdicts[0].Code != api.CodeTokenStale {
		t.Fatalf("the verdicts are %+v, want one that is stale", verdicts)
	}
	want := map[string]int64{"a http": 2, "b http": 1, "b bulk": 1}
	await.True(t, "the rejections are recorded, each with its principal", func() bool {
		h.record(t) // a verdict of a stream may be counted after it was sent
		found := map[string]int64{}
		for _, r := range as[api.Rejections](t, root.get(t, "/v1/rejections"), http.StatusOK).Rejections {
			found[r.Principal+" "+r.Source] = r.Count
		}
		return maps.Equal(found, want)
	})
	if of := as[api.Rejections](t, root.get(t, "/v1/rejections?principal=a"), http.StatusOK).Rejections; len(of) != 1 ||
		of[0].Principal != "a" {
		t.Errorf("the rejections of the principal a are %+v, want one", of)
	}
}
