package gateway

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/lockclient/api"
)

// TestRefusalsInAuditLog checks that accesses which the gateway refused are entries of the audit log with a count, one
// for each principal or address and reason, without a credential; that a request does not wait for that; and that the
// metric counts the same.
func TestRefusalsInAuditLog(t *testing.T) {
	h, admin := newGuarded(t)
	root, caller := h.by(admin), h.by(h.key(t, "p", "lock,write:jobs"))
	lease := caller.acquire(t, "jobs/1", "w")
	unlock := h.hold(t, "lock table fence.audit in access exclusive mode")
	wrong, _, _ := apikey.New()
	for range 3 {
		expectProblem(t, caller.get(t, lockPath("other/1", "")), api.CodeForbidden)
		expectProblem(t, h.by(bearerOf(wrong)).get(t, "/v1/locks"), api.CodeUnauthenticated)
	}
	expectProblem(t, h.get(t, "/v1/locks"), api.CodeUnauthenticated)
	expectProblem(t, h.by(bearerOf("x y z")).post(t, lockPath("jobs/1", "/acquire"), `{}`), api.CodeUnauthenticated)
	expectProblem(t, caller.get(t, "/v1/sessions"), api.CodeForbidden)
	other := lease
	other.Lock = "other/2"
	caller.bulk(t, putLine(other, 1, "k", "1"))
	unlock()

	if err := h.gateway.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := map[string]string{}
	for _, entry := range root.audit(t, "?action=access_refused") {
		if entry.Address != "127.0.0.1" {
			t.Errorf("the address is %s", entry.Address)
		}
		counts[entry.Principal+" "+entry.Name+" "+string(entry.Details)] = ""
	}
	for _, want := range []string{
		`p other/1 {"count":5,"reason":"forbidden"}`, `anonymous  {"count":3,"reason":"unknown"}`,
		`anonymous  {"count":1,"reason":"malformed"}`,
	} {
		if _, ok := counts[want]; !ok || len(counts) != 3 {
			t.Errorf("the refusals are %q, want 3 with %s", counts, want)
		}
	}
	h.exec(t, `insert into fence.audit (principal, address, action, name, details)
		select 'p', '', 'access_refused', '', '{}' from generate_series(1, 10000)`)
	h.exec(t, "select fence.check_actor('p', true)") // they are no actions of p
	metrics := string(root.get(t, "/metrics").body)
	if line := `fencegate_unauthenticated_total{reason="unknown"} 3`; !strings.Contains(metrics, line) {
		t.Errorf("/metrics lacks %s", line)
	}
	if h.count(t, "select count(*) from fence.audit a where strpos(a::text, $1) > 0 or a::text like '%x y%'", wrong[5:]) > 0 {
		t.Error("the audit log has a credential")
	}
}

// TestRefusalsAreBounded checks that refusals of more principals than have entries are counted together, and that none
// gets lost while the database is away.
func TestRefusalsAreBounded(t *testing.T) {
	h, _ := newGuarded(t)
	const callers = 50
	for i := range callers {
		expectProblem(t, h.by(h.key(t, strings.Repeat("p", i+1), "lock:jobs")).get(t, "/v1/keys"), api.CodeForbidden)
	}
	h.exec(t, "alter function fence.note_refusals rename to away")
	if err := h.gateway.audit(t.Context()); err == nil {
		t.Fatal("the refusals were written, want an error")
	}
	expectProblem(t, h.by(h.key(t, "last", "lock:jobs")).get(t, "/v1/keys"), api.CodeForbidden)
	h.exec(t, "alter function fence.away rename to note_refusals")
	expectEntries := func(entries, others int64) {
		t.Helper()
		if err := h.gateway.audit(t.Context()); err != nil {
			t.Fatal(err)
		}
		const refused = " from fence.audit where action = 'access_refused'"
		if got, rest := h.count(t, "select count(*)"+refused), h.count(t, "select coalesce(sum((details ->> 'count')::bigint), 0)"+refused+
			" and details ->> 'reason' = 'others'"); got != entries || rest != others {
			t.Errorf("there are %d entries, and others are counted as %d, want %d and %d", got, rest, entries, others)
		}
	}
	expectEntries(2, callers)
	for i := range callers {
		expectProblem(t, h.by(h.key(t, strings.Repeat("q", i+1), "lock:jobs")).get(t, "/v1/keys"), api.CodeForbidden)
	}
	expectEntries(2+20+1, callers+callers-20)
	expectEntries(2+20+1, callers+callers-20)
}

// TestHeadOfAuditLog checks that the gateway logs the head of the audit log once after each change.
func TestHeadOfAuditLog(t *testing.T) {
	var log bytes.Buffer
	h := newHarness(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, seals := range []int{0, 0, 1, 1, 2} {
		if int64(seals) > h.count(t, "select count(*) from fence.audit_seals") {
			as[api.Policy](t, h.send(t, "PUT", "/v1/policies/a", `{}`, jsonType), http.StatusOK)
			h.exec(t, "select fence.sweep_all()")
		}
		if err := h.gateway.audit(t.Context()); err != nil {
			t.Fatal(err)
		}
		heads := h.texts(t, "select seal || ':' || hash from fence.audit_seals order by seal")
		lines := strings.Count(log.String(), "audit log sealed")
		if lines != seals || len(heads) != seals || seals > 0 && !strings.HasSuffix(strings.TrimSpace(log.String()), "head="+heads[seals-1]) {
			t.Errorf("with the heads %v, the log is %s", heads, &log)
		}
	}
}
