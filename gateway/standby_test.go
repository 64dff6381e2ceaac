package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/await"
)

// unconfirmed is a call whose commit no standby confirms, and what the same is answered when one does.
type unconfirmed struct {
	name, method, path, body, header string

	again    int    // the status
	contains string // what is in the answer
}

func (u unconfirmed) send(t *testing.T, h *harness) <-chan answer {
	return inBackground(func() answer { return h.send(t, u.method, u.path, u.body, u.header) })
}

// P14, P10: A commit whose wait for the standby was ended is answered unknown, and so is the same sent again, until a
// standby has confirmed it. Then the answer is that of the first.
func TestCommitsThatNoStandbyConfirms(t *testing.T) {
	p := newPair(t)
	p.exec(t, "do $$begin execute format('alter role %I set client_min_messages = error', current_user); end$$")
	p.endSessions(t)
	kept := p.acquire(t, "kept", "worker")
	calls := p.unconfirmedCalls(t)
	session := p.createSession(t, "worker", time.Hour)
	as[api.WriteResult](t, p.put(t, kept, 1, "confirmed"), http.StatusCreated)
	p.standby.Stop()

	for _, how := range []string{cancel, terminate} {
		for _, u := range calls {
			t.Log(how, u.name)
			expectUnknown(t, p.endWaits(t, how, u.send(t, p.harness)))
		}
	}
	t.Run("what need not be durable", func(t *testing.T) {
		p.renew(t, kept)
		p.keepAlive(t, session)
		expectProblem(t, p.put(t, kept, 1, "another"), api.CodeTokenStale)
		p.record(t)
	})
	t.Run("reads", func(t *testing.T) { p.readUnconfirmed(t) })
	waiter := p.grantUnconfirmed(t)

	p.standby.Restart()
	for _, u := range calls {
		got := <-u.send(t, p.harness)
		if got.status != u.again || !strings.Contains(string(got.body), u.contains) {
			t.Errorf("%s: the confirmed commit is answered %d: %s; want %d with %s", u.name, got.status, got.body, u.again, u.contains)
		}
	}
	lease := granted(t, waiter)
	as[api.WriteResult](t, p.put(t, lease, 1, "under the lease that was waited for"), http.StatusCreated)
}

// unconfirmedCalls returns a call of each kind whose effect is acknowledged.
func (p pair) unconfirmedCalls(t *testing.T) []unconfirmed {
	t.Helper()
	lease := func(lock string) api.Lease { return p.acquire(t, lock, "worker") }
	put, transacted, deleted := lease("put"), lease("transaction"), lease("delete")
	as[api.WriteResult](t, p.put(t, deleted, 1, "value"), http.StatusCreated)
	released, resigned, ended := lease("released"), lease("resigned"), p.createSession(t, "worker", time.Hour)
	lease("broken")
	p.acquireAs(t, "in-session", api.AcquireRequest{OwnerID: "worker", SessionID: &ended.SessionID})
	as[api.Policy](t, p.send(t, "PUT", "/v1/policies/former", "{}", jsonType), http.StatusOK)
	as[api.Policy](t, p.send(t, "PUT", "/v1/policies/external", `{"authority":"external"}`, jsonType), http.StatusOK)
	var lines strings.Builder
	for i := range 5 {
		lines.WriteString(putLine(lease(fmt.Sprint("bulk/", i)), 1, "k", "1"))
	}
	const acquire, replayed = `{"owner_id":"worker","request_id":"r"}`, `"replayed":true`
	return []unconfirmed{
		{"put", "PUT", recordPath("put", "k"), "value", token(put, 1), 200, replayed},
		{"delete", "DELETE", recordPath("delete", "k"), "", token(deleted, 2), 200, replayed},
		{"transaction", "POST", "/v1/transactions", transaction(transacted, 1), jsonType, 200, replayed},
		{"bulk", "POST", "/v1/writes", lines.String(), "Content-Type: " + api.BulkContentType, 200, replayed},
		{"acquire", "POST", lockPath("new", "/acquire"), acquire, jsonType, 200, "fencing_token"},
		{"release", "POST", lockPath("released", "/release"), refOf(released), jsonType, 200, ""},
		{"break", "POST", lockPath("broken", "/break"), `{"reason":"r"}`, jsonType, 404, "nobody holds"},
		{"resign", "POST", electionPath("resigned", "/resign"), resignOf(resigned), jsonType, 200, ""},
		{"create a session", "POST", "/v1/sessions", `{"owner_id":"worker"}`, jsonType, 201, "session_id"},
		{"end a session", "DELETE", sessionPath(ended), "", jsonType, 200, `"released":`},
		{"set a policy", "PUT", "/v1/policies/new", "{}", jsonType, 200, ""},
		{"delete a policy", "DELETE", "/v1/policies/former", "", jsonType, 404, "no policy"},
		{"set a fence", "PUT", "/v1/resources/external/fence", `{"last_token":7,"reason":"r"}`, jsonType, 200, ""},
	}
}

// expectUnknown expects that every change of a request may or may not have been made.
func expectUnknown(t *testing.T, got answer) {
	t.Helper()
	if got.header.Get("Content-Type") != api.BulkContentType {
		expectUnavailable(t, got, api.OutcomeUnknown)
		return
	}
	verdicts, _ := splitBulk(t, got)
	for _, verdict := range verdicts {
		if !strings.Contains(verdict.text, `"outcome":"unknown"`) {
			t.Errorf("a line of a batch is answered %s, want the outcome unknown", verdict.text)
		}
	}
}

// readUnconfirmed reads what the primary alone has.
func (p pair) readUnconfirmed(t *testing.T) {
	t.Helper()
	p.expectRecord(t, recordPath("put", "k"), "value", "application/octet-stream")
	for _, key := range []string{"k", "none"} {
		got := inBackground(func() answer { return p.get(t, recordPath("put", key)+"?consistency=durable") })
		expectUnavailable(t, p.endWaits(t, cancel, got), api.OutcomeNotApplied)
	}
}

// grantUnconfirmed has a lock granted to a waiter, and ends the wait of the grant's commit. The waiter must not be told:
// it asks again, and waits for the standby.
func (p pair) grantUnconfirmed(t *testing.T) (waiter <-chan answer) {
	t.Helper()
	holder := p.count(t, "select fencing_token from fence.leases where lock = 'kept'")
	waiter = p.waitInQueue(t, "kept", api.AcquireRequest{OwnerID: "waiter"})
	breaking := inBackground(func() answer { return p.post(t, lockPath("kept", "/break"), `{"reason":"r"}`) })
	expectUnavailable(t, p.endWaits(t, cancel, breaking), api.OutcomeUnknown)
	for range 2 { // the grant, and the waiter's question
		p.awaitCommit(t)
		p.count(t, "select count("+cancel+")"+waitingCommits)
	}
	await.True(t, "the lock is granted to the waiter, on the primary", func() bool {
		return p.count(t, "select max(fencing_token) from fence.leases where lock = 'kept'") > holder
	})
	p.awaitCommit(t)
	select {
	case got := <-waiter:
		t.Fatalf("the waiter is answered %s, though no standby has confirmed the grant", got.body)
	default:
	}
	return waiter
}
