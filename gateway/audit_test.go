package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
)

func (c client) audit(t *testing.T, query string) []api.AuditEntry {
	t.Helper()
	return as[api.Audit](t, c.get(t, "/v1/audit"+query), http.StatusOK).Entries
}

// TestAuditLog checks that each action of an administrator has one entry with who, what and where from, that one that
// fails has none, and that no entry shows a key.
func TestAuditLog(t *testing.T) {
	h, admin := newGuarded(t)
	root := h.by(admin)
	lease := root.acquire(t, "jobs/1", "w")
	root.setPolicy(t, "jobs", `{"rule":"same_token"}`)
	root.setPolicy(t, "jobs", `{"max_hold_ms":60000}`)
	root.send(t, "DELETE", "/v1/policies/jobs", "")
	expectProblem(t, root.send(t, "DELETE", "/v1/policies/jobs", ""), api.CodeNotFound)
	for range 2 {
		root.post(t, lockPath("jobs/1", "/break"), `{"reason":"=1"}`)
	}
	root.setPolicy(t, "other", `{"authority":"external"}`)
	path := "/v1/resources/other/1/fence"
	as[api.FenceSet](t, root.send(t, "PUT", path, `{"last_token":7,"reason":"r"}`, jsonType), http.StatusOK)
	made := root.makeKey(t, api.KeyRequest{Principal: "p", Grants: []string{"lock:jobs"}})
	rotated := as[api.NewKey](t, root.post(t, "/v1/keys/"+made.ID+"/rotate", `{}`), http.StatusCreated)
	for range 2 {
		as[api.Key](t, root.send(t, "DELETE", "/v1/keys/"+made.ID, ""), http.StatusOK)
	}
	h.exec(t, "create table audited (id text)")
	for _, sql := range []string{
		"protect('audited', 'a/{id}')", "open_table('audited')", "close_table('audited')", "unprotect('audited')",
	} {
		h.exec(t, "select fence."+sql)
	}

	entries := root.audit(t, "?limit=1000")
	var got []string
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		bySQL := strings.HasPrefix(e.Action, "table_")
		if strings.HasPrefix(e.Principal, "sql:") != bySQL || e.Principal == "admin" && e.Address != "127.0.0.1" {
			t.Errorf("%s is by %s at %s", e.Action, e.Principal, e.Address)
		}
		got = append(got, strings.TrimSpace(e.Action+" "+e.Name))
	}
	const want = "key_created, policy_set jobs, policy_set jobs, policy_deleted jobs, lease_broken jobs/1, " +
		"policy_set other, fence_set other/1, key_created, key_rotated, key_created, key_revoked, table_protected, " +
		"table_opened, table_closed, table_unprotected"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("the audit log is\n%s, want\n%s", text, want)
	}
	text := string(root.get(t, "/v1/audit").body)
	for _, secret := range []string{made.Secret, rotated.Secret, lease.LeaseID, strings.TrimPrefix(admin, bearerOf(""))} {
		if strings.Contains(text, secret) {
			t.Errorf("the audit log shows the secret %s", secret)
		}
	}
	if !strings.Contains(text, `"max_hold_ms":60000`) || !strings.Contains(text, `"before":{"rule":"same_token"`) {
		t.Errorf("the audit log lacks a policy, or the one before it: %s", text)
	}
	root.expectAuditPages(t, entries)
	metrics := string(root.get(t, "/metrics").body)
	if line := `fencegate_admin_actions_total{action="policy_set"} 3`; !strings.Contains(metrics, line) {
		t.Errorf("/metrics lacks %s", line)
	}

	h.exec(t, "select fence.accept_database(5)") // from here on, the gateway refuses requests for a moment
	h.exec(t, `do $$ begin if not exists (select from fence.audit a
		where a.action = 'database_accepted' and a.principal = 'sql:' || session_user) then raise 'it has no entry'; end if;
		end $$`)
}

// expectAuditPages checks the filters and the pages of the audit log of TestAuditLog.
func (c client) expectAuditPages(t *testing.T, entries []api.AuditEntry) {
	t.Helper()
	for query, count := range map[string]int{
		"?action=policy_set": 3, "?name=jobs/1": 1, "?prefix=jo": 4,
		"?principal=admin": 10, "?principal=test": 1, "?principal=nobody": 0,
		"?until=2026-01-01T00:00:00Z": 0, "?since=2026-01-01T00:00:00Z&action=key_rotated": 1,
	} {
		if found := c.audit(t, query); len(found) != count {
			t.Errorf("%s: there are %d entries, want %d", query, len(found), count)
		}
	}
	first := as[api.Audit](t, c.get(t, "/v1/audit?limit=9"), http.StatusOK)
	second := as[api.Audit](t, c.get(t, "/v1/audit?limit=9&cursor="+first.NextCursor), http.StatusOK)
	if n := len(first.Entries) + len(second.Entries); n != len(entries) || second.Entries[0].ID != entries[9].ID {
		t.Errorf("two pages have %d entries, want %d, and the second is %+v", n, len(entries), second)
	}
	expectProblem(t, c.get(t, "/v1/audit?action=nothing"), api.CodeInvalidRequest)
}
