package gateway

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
)

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

// TestRequirePrincipalOwner checks that a policy can demand an owner_id that is the principal's, for elections and by SQL
// as for locks, of which the conformance suite of providers checks every case.
func TestRequirePrincipalOwner(t *testing.T) {
	h, admin := newGuarded(t)
	bob := h.by(h.key(t, "bob", "all:"))
	if set := h.by(admin).setPolicy(t, "own", `{"require_principal_owner":true}`); !set.RequirePrincipalOwner {
		t.Errorf("the policy is %+v, want that it requires the owner", set)
	}
	expectProblem(t, bob.post(t, lockPath("own/lock", "/acquire"), `{"owner_id":"alice"}`), api.CodeInvalidRequest)
	expectProblem(t, bob.campaign(t, "own/election", api.CampaignRequest{Candidate: "alice"}), api.CodeInvalidRequest)
	bob.acquire(t, "other/lock", "alice")
	bob.win(t, "own/election", api.CampaignRequest{Candidate: "bob/1"})

	h.exec(t, "select fence.acquire('own/sql', 'sql:' || session_user || '/1')")
	h.exec(t, `do $$ begin perform fence.acquire('own/sql/2', 'bob'); raise 'it was granted';
		exception when invalid_parameter_value then end $$`)
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
	if verdicts, _ := b.bulk(t, putLine(lease, 1, "k", "1")); len(verdicts) != 1 || verdicts[0].Code != api.CodeTokenStale {
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
