package gateway

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
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
		store.Config{DatabaseURL: h.databaseURL, StatementTimeout: time.Hour})
	other.guard(t)
	root := h.by(admin)
	made := root.makeKey(t, api.KeyRequest{Principal: "p", Description: "d", Grants: []string{"lock,write,observe:job"}})
	here, there := h.by(bearerOf(made.Secret)), other.by(bearerOf(made.Secret))
	if got := here.get(t, "/v1/locks"); got.status != http.StatusOK {
		t.Errorf("where it was made the key is answered %d, want 200", got.status)
	}
	there.awaitStatus(t, http.StatusOK)
	lease := there.acquire(t, "job", "w")
	bulk, watch := there.openBulk(t), there.open(t, lockPath("job", "/watch"))
	bulk.write(t, putLine(lease, 1, "k", "1"))
	bulk.verdict(t, 1, http.StatusCreated)
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
	watch.next(t, "queued")

	for range 2 {
		if key := as[api.Key](t, root.send(t, "DELETE", "/v1/keys/"+made.ID, ""), http.StatusOK); key.RevokedAt == nil {
			t.Errorf("the key is %+v, want it revoked", key)
		}
	}
	expectProblem(t, here.get(t, "/v1/locks"), api.CodeUnauthenticated)
	there.awaitStatus(t, http.StatusUnauthorized)
	bulk.write(t, putLine(lease, 2, "k", "2"))
	bulk.verdict(t, 2, http.StatusUnauthorized)
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
	if err := h.store.Keyring().ReportUses(t.Context()); err != nil {
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
