package gateway

import (
	"bytes"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store/postgres"
)

// makeKey makes a key by the API.
func (c client) makeKey(t *testing.T, request api.KeyRequest) api.NewKey {
	t.Helper()
	return as[api.NewKey](t, c.post(t, "/v1/keys", encode(request)), http.StatusCreated)
}

func (c client) awaitStatus(t *testing.T, status int) {
	t.Helper()
	await.True(t, "the key is answered "+http.StatusText(status), func() bool {
		return c.get(t, "/v1/locks").status == status
	})
}

// TestRevokedKey checks that a key works at every gateway, and stops at each after it was revoked at one: at once
// there, and in streams that are open and acquires that wait.
func TestRevokedKey(t *testing.T) {
	h, admin := newGuarded(t)
	other := newGateway(t, Config{KeepAlive: 100 * time.Millisecond},
		postgres.Config{DatabaseURL: h.databaseURL, StatementTimeout: time.Hour})
	other.guard(t)
	root := h.by(admin)
	made := root.makeKey(t, api.KeyRequest{Principal: "p", Description: "d", Grants: []string{"lock,write,observe:job"}})
	here, there := h.by(bearerOf(made.Secret)), other.by(bearerOf(made.Secret))
	if got := here.get(t, "/v1/locks"); got.status != http.StatusOK {
		t.Errorf("where it was made the key is answered %d, want 200", got.status)
	}
	there.awaitStatus(t, http.StatusOK)
	lease := there.acquire(t, "job", "w")
	watch := there.open(t, lockPath("job", "/watch"))
	watch.next(t, api.EventState)
	idle := there.open(t, lockPath("job/idle", "/watch"))
	idle.next(t, api.EventState)
	if lock := there.lock(t, "job"); lock.Fence != nil {
		t.Errorf("without the scope read, the fence is shown: %+v", lock.Fence)
	}
	if got := root.send(t, "DELETE", "/v1/keys/"+made.Secret, ""); bytes.Contains(got.body, []byte(made.Secret)) {
		t.Errorf("the answer shows a key that was given in place of its id: %s", got.body)
	}
	waiting := there.waitInQueue(t, "job", api.AcquireRequest{OwnerID: "waiter"})
	watch.next(t, api.EventState)

	for range 2 {
		if key := as[api.Key](t, root.send(t, "DELETE", "/v1/keys/"+made.ID, ""), http.StatusOK); key.RevokedAt == nil {
			t.Errorf("the key is %+v, want it revoked", key)
		}
	}
	expectProblem(t, here.get(t, "/v1/locks"), api.CodeUnauthenticated)
	there.awaitStatus(t, http.StatusUnauthorized)
	expectProblem(t, <-waiting, api.CodeUnauthenticated) // while the lock is held
	root.awaitQueue(t, "job")
	watch.endedFor(t, "unauthenticated")
	idle.endedFor(t, "unauthenticated")
	root.release(t, lease)
	if lock := root.lock(t, "job"); lock.State != "free" {
		t.Errorf("the lock is %s, want free: the acquire of the revoked key was not granted", lock.State)
	}
}

// TestKeysEnd checks that a key that was rotated works on for the overlap beside the new one, that a key expires, and
// that the list shows when keys were used, and never a key itself.
func TestKeysEnd(t *testing.T) {
	h, admin := newGuarded(t)
	root := h.by(admin)
	first := root.makeKey(t, api.KeyRequest{Principal: "p", Grants: []string{"all:a", "observe:"}, LifetimeMS: new(int64(86_400_000))})
	rotate := func(key api.NewKey, body string) api.NewKey {
		t.Helper()
		return as[api.NewKey](t, root.post(t, "/v1/keys/"+key.ID+"/rotate", body), http.StatusCreated)
	}
	second := rotate(first, "{}")
	h.by(bearerOf(first.Secret)).awaitStatus(t, http.StatusOK)
	h.by(bearerOf(second.Secret)).awaitStatus(t, http.StatusOK)
	third := rotate(second, `{"overlap_ms":0}`)
	h.by(bearerOf(third.Secret)).awaitStatus(t, http.StatusOK)
	h.by(bearerOf(second.Secret)).awaitStatus(t, http.StatusUnauthorized)
	if strings.Join(third.Grants, " ") != "lock:a write:a read:a observe: admin:a" || third.Principal != "p" ||
		third.CreatedBy != "admin" || third.ExpiresAt == nil {
		t.Errorf("the third key is %+v, want what the first one may", third)
	}
	expectProblem(t, root.post(t, "/v1/keys/"+second.ID+"/rotate", "{}"), api.CodeNotFound)
	expectProblem(t, root.send(t, "DELETE", "/v1/keys/0123456789", ""), api.CodeNotFound)
	expectProblem(t, root.post(t, "/v1/keys", `{"principal":"p","grants":["wirte:a"]}`), api.CodeInvalidRequest)
	expectProblem(t, root.post(t, "/v1/keys", `{"principal":"p","grants":["write:a//b"]}`), api.CodeInvalidName)
	for _, principal := range []string{"", "anonymous", "sql:", "sql:admin", `a\u200bb`, `a\u202eb`, `a\u00a0b`} {
		body := `{"principal":"` + principal + `","grants":["write:a"]}`
		expectProblem(t, root.post(t, "/v1/keys", body), api.CodeInvalidRequest)
	}

	expectProblem(t, root.post(t, "/v1/keys", `{"principal":"p","description":"a\u2066b","grants":["write:a"]}`),
		api.CodeInvalidRequest)

	short := root.makeKey(t, api.KeyRequest{Principal: "p", Grants: []string{"observe:"}, LifetimeMS: new(int64(1000))})
	h.by(bearerOf(short.Secret)).awaitStatus(t, http.StatusUnauthorized)
	if err := h.engine.Keyring().ReportUses(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := root.get(t, "/v1/keys?limit=3")
	page := as[api.Keys](t, got, http.StatusOK)
	rest := as[api.Keys](t, root.get(t, "/v1/keys?cursor="+page.NextCursor), http.StatusOK)
	if len(page.Keys) != 3 || len(rest.Keys) != 2 || page.Keys[0].ID != short.ID || rest.Keys[0].ID != first.ID {
		t.Errorf("the keys are %+v and %+v, want five, the newest first", page.Keys, rest.Keys)
	}
	if page.Keys[1].LastUsedAt == nil || rest.Keys[1].LastUsedAt == nil {
		t.Errorf("the keys are %+v, want their last use", page.Keys)
	}
	if bytes.Contains(got.body, []byte("fgk_")) {
		t.Errorf("the list has a key: %s", got.body)
	}
}

// TestKeysMax checks that only keys which have not ended count against the limit.
func TestKeysMax(t *testing.T) {
	h, admin := newGuarded(t)
	root := h.by(admin)
	ended := root.makeKey(t, api.KeyRequest{Principal: "p", Grants: []string{"observe:"}})
	root.send(t, "DELETE", "/v1/keys/"+ended.ID, "")
	makeOne := func(id string) error {
		_, err := h.db.Exec(t.Context(), `select fence.create_key($1, sha256($1::text::bytea), 'p', '', '{observe:}', 'test', null,
			(select count(*) from fence.keys where revoked_at is null) + 1)`, id)
		return err
	}
	if err := makeOne("0000000001"); err != nil {
		t.Errorf("with room for one more key: %v", err)
	}
	_, err := h.db.Exec(t.Context(), `select fence.create_key('0000000002', sha256(''), 'p', '', '{observe:}', 'test', null,
		(select count(*) from fence.keys where revoked_at is null))`)
	if err == nil || !strings.Contains(err.Error(), "54000") {
		t.Errorf("with as many live keys as there may be, the answer is %v, want 54000", err)
	}
}

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

// Policies are set, read, listed, reset and deleted, and their leases have the end that max_hold_ms demands.
func TestPolicies(t *testing.T) {
	h := newHarness(t, Config{})
	list := func() []api.Policy { return as[api.Policies](t, h.get(t, "/v1/policies"), http.StatusOK).Policies }
	if empty := list(); empty == nil || len(empty) != 0 {
		t.Errorf("the first list is %#v, want an empty one", empty)
	}
	every := api.Policy{Rule: "strict", Authority: "builtin", RequireLiveLease: true, MaxHoldMS: 60_000}
	some := api.Policy{Prefix: "a/b", Rule: "same_token", Authority: "builtin", RequireLeaseID: true, RequirePrincipalOwner: true}
	other := api.Policy{Prefix: "a%2Fb c", Rule: "strict", Authority: "external"}
	bodies := map[string]string{
		"":            `{"require_live_lease":true,"max_hold_ms":60000}`,
		"a/b":         `{"rule":"same_token","require_lease_id":true,"require_principal_owner":true}`,
		"a%252Fb%20c": `{"authority":"external"}`,
	}
	for path, want := range map[string]api.Policy{"": every, "a/b": some, "a%252Fb%20c": other} {
		expectProblem(t, h.get(t, "/v1/policies/"+path), api.CodeNotFound)
		set, got := h.setPolicy(t, path, bodies[path]), as[api.Policy](t, h.get(t, "/v1/policies/"+path), http.StatusOK)
		if set != want || got != want {
			t.Errorf("the policy was set as %+v and read as %+v, want %+v", set, got, want)
		}
	}
	if want := []api.Policy{every, other, some}; !slices.Equal(list(), want) {
		t.Errorf("the list is %+v, want %+v", list(), want)
	}
	lease := h.acquire(t, "job", "worker")
	if lease.HoldUntil == nil || lease.HoldUntil.Sub(lease.GrantedAt.Time) != time.Minute ||
		!lease.ExpiresAt.Equal(lease.HoldUntil.Time) || *lease.HoldLeftMS > 60_000 {
		t.Errorf("the lease is %+v, want it to end after a minute", lease)
	}
	// Fields that are absent get their defaults, not their former values.
	if reset := h.setPolicy(t, "a/b", `{"max_hold_ms":null}`); reset != (api.Policy{Prefix: "a/b", Rule: "strict", Authority: "builtin"}) {
		t.Errorf("the empty policy is %+v, want the defaults", reset)
	}
	for path := range bodies {
		deleted := h.delete(t, "/v1/policies/"+path)
		if deleted.status != http.StatusNoContent || len(deleted.body) != 0 {
			t.Errorf("the delete returned %d %s, want 204 and no body", deleted.status, deleted.body)
		}
		expectProblem(t, h.delete(t, "/v1/policies/"+path), api.CodeNotFound)
	}
}

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
