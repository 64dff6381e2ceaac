package gateway

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/terraform"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// stateClient sends what Terraform sends for one state.
type stateClient struct {
	client

	path    string
	headers []string
}

func (c client) terraform(state string, headers ...string) stateClient {
	return stateClient{c, "/v1/terraform/" + state, append(headers, jsonType)}
}

func (c stateClient) lock(t testing.TB, id string) answer {
	t.Helper()
	return c.send(t, "LOCK", c.path, lockBody(id), c.headers...)
}

func (c stateClient) unlock(t testing.TB, body string) answer {
	t.Helper()
	return c.send(t, "UNLOCK", c.path, body, c.headers...)
}

func (c stateClient) write(t testing.TB, id string, serial int, text string) answer {
	t.Helper()
	return c.send(t, http.MethodPost, c.path+"?ID="+id, stateText(serial, text), c.headers...)
}

// mustLock locks the state, and returns the fencing token.
func (c stateClient) mustLock(t testing.TB, id string) string {
	t.Helper()
	got := c.lock(t, id)
	as[terraform.LockInfo](t, got, http.StatusOK)
	return got.header.Get(api.HeaderFencingToken)
}

func (c stateClient) mustUnlock(t testing.TB, id string) {
	t.Helper()
	as[api.Released](t, c.unlock(t, lockBody(id)), http.StatusOK)
}

func (c stateClient) mustWrite(t testing.TB, id string, serial int, text string) api.WriteResult {
	t.Helper()
	return as[api.WriteResult](t, c.write(t, id, serial, text), http.StatusOK)
}

// expects checks the state that is stored.
func (c stateClient) expects(t testing.TB, serial int, text string) {
	t.Helper()
	got := c.send(t, http.MethodGet, c.path, "", c.headers...)
	if want := stateText(serial, text); got.status != http.StatusOK || string(got.body) != want {
		t.Errorf("%s: answered %d %s, want %s", got.request, got.status, got.body, want)
	}
}

func (c stateClient) versions(t testing.TB) []api.StateVersion {
	t.Helper()
	got := c.send(t, http.MethodGet, c.path+"/history", "", c.headers...)
	return as[api.StateVersions](t, got, http.StatusOK).Versions
}

func lockBody(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"root@vm","Version":"1.11.4",`+
		`"Created":"2026-01-02T09:00:00.123456789Z","Path":""}`, id)
}

func stateText(serial int, text string) string {
	return fmt.Sprintf(`{"version": 4, "serial": %d, "lineage": "l", "outputs": {"text": %q}}`, serial, text)
}

// A state passes from one lock to the next. The ID of a lock finds its lease again, and one that has lost it writes
// nothing, at any gateway.
func TestTerraformLocks(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	c := h.terraform("prod/network")
	if got := c.get(t, c.path); got.status != http.StatusNotFound {
		t.Errorf("%s: answered %d without a state, want 404", got.request, got.status)
	}
	token := c.mustLock(t, "a")
	if again := c.mustLock(t, "a"); again != token {
		t.Errorf("LOCK with the same ID was granted the token %s, want %s again", again, token)
	}
	got := c.lock(t, "b")
	holder := as[terraform.LockInfo](t, got, http.StatusLocked)
	if holder.ID != "a" || holder.Who != "root@vm" || !strings.Contains(holder.Info, "expires") {
		t.Errorf("%s: the holder is %+v, want the lock a of root@vm, and when it expires", got.request, holder)
	}

	first := c.mustWrite(t, "a", 1, "x")
	if again := c.mustWrite(t, "a", 1, "x"); !again.Replayed || again.Version != first.Version {
		t.Errorf("a write that was sent again is %+v, want a replay of %+v", again, first)
	}
	c.mustWrite(t, "a", 2, "y")
	expectReason(t, c.write(t, "a", 1, "x"), api.CodeLeaseLost, "reused") // delayed behind the newer one
	c.expects(t, 2, "y")
	c.mustUnlock(t, "a")
	expectReason(t, c.write(t, "a", 3, "late"), api.CodeLeaseLost, "released")

	other := h.another(t, Config{Terraform: true})
	d := other.terraform("prod/network")
	d.mustLock(t, "b")
	expectReason(t, c.write(t, "a", 3, "late"), api.CodeLeaseLost, "superseded")
	c.mustUnlock(t, "a") // holds nothing: nothing is released
	c.mustWrite(t, "b", 3, "z")
	d.expects(t, 3, "z")
	c.mustUnlock(t, "b")
	expectReason(t, c.lock(t, "a"), api.CodeLeaseLost, "released")

	h.record(t)
	list := as[api.Rejections](t, h.get(t, "/v1/rejections?resource=terraform/prod/network&code=token_stale"), http.StatusOK)
	reasons := map[string]bool{}
	for _, rejection := range list.Rejections {
		reasons[rejection.Reason] = rejection.OwnerID == "root@vm"
	}
	if !reasons["reused"] || !reasons["released"] || !reasons["superseded"] {
		t.Errorf("the rejections are %+v, want root@vm's for the reasons reused, released and superseded", list.Rejections)
	}
}

// "terraform force-unlock" sends no body. From then on the former holder writes nothing, also if nobody else has locked.
func TestTerraformForceUnlock(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	c := h.terraform("prod")
	c.mustLock(t, "a")
	c.mustWrite(t, "a", 1, "x")
	if broken := as[api.Broken](t, c.unlock(t, ""), http.StatusOK); broken.Lock != "terraform/prod" {
		t.Errorf("force-unlock broke %+v, want the lock terraform/prod", broken)
	}
	expectReason(t, c.write(t, "a", 2, "late"), api.CodeLeaseLost, "released")
	expectProblem(t, c.delete(t, c.path+"?ID=a"), api.CodeLeaseLost)
	c.expects(t, 1, "x")
	c.mustUnlock(t, "a")
	expectProblem(t, c.unlock(t, ""), api.CodeNotFound)

	// The same by the paths for proxies that let only common methods pass.
	as[terraform.LockInfo](t, c.post(t, c.path+"/lock", lockBody("b")), http.StatusOK)
	as[api.Released](t, c.post(t, c.path+"/unlock", lockBody("b")), http.StatusOK)
}

// The newest versions are kept, and each write keeps one. A version that is pushed again is a write like any other.
func TestTerraformHistory(t *testing.T) {
	h := newHarness(t, Config{Terraform: true, TerraformVersionsMax: 3})
	c := h.terraform("prod")
	serials := func() (serials []int64) {
		for _, version := range c.versions(t) {
			serials = append(serials, *version.Serial)
		}
		return serials
	}
	c.mustLock(t, "a")
	for serial := 1; serial <= 5; serial++ {
		c.mustWrite(t, "a", serial, fmt.Sprint(serial))
		c.mustWrite(t, "a", serial, fmt.Sprint(serial)) // a replay
	}
	if got := fmt.Sprint(serials()); got != "[5 4 3]" {
		t.Errorf("after five writes the history has the serials %s, want the newest three", got)
	}
	oldest := c.versions(t)[2]
	got := c.get(t, fmt.Sprintf("%s/history/%d", c.path, oldest.Version))
	if string(got.body) != stateText(3, "3") || oldest.Size != int64(len(got.body)) {
		t.Errorf("%s: answered %d %s, want serial 3 of %d bytes", got.request, got.status, got.body, oldest.Size)
	}
	c.mustUnlock(t, "a")

	c.mustLock(t, "push")
	c.mustWrite(t, "push", 3, "3")
	c.expects(t, 3, "3")
	if got := fmt.Sprint(serials()); got != "[3 5 4]" {
		t.Errorf("after a version was restored the history has the serials %s, want [3 5 4]", got)
	}
	expectProblem(t, c.get(t, fmt.Sprintf("%s/history/%d", c.path, oldest.Version)), api.CodeNotFound)

	as[api.WriteResult](t, c.delete(t, c.path+"?ID=push"), http.StatusOK)
	expectProblem(t, c.get(t, c.path), api.CodeNotFound)
	expectProblem(t, c.delete(t, c.path+"?ID=push"), api.CodeNotFound)
	if got := len(c.versions(t)); got != 3 {
		t.Errorf("after a delete the history has %d versions, want 3", got)
	}
}

// A lock whose time is over may finish, until another one is granted.
func TestTerraformLockExpires(t *testing.T) {
	h := newHarness(t, Config{Terraform: true, TerraformLockTTL: store.TTLMin})
	c := h.terraform("prod")
	c.mustLock(t, "a")
	await.True(t, "the lock has expired", func() bool {
		return c.client.lock(t, "terraform/prod").State == string(store.LockExpired)
	})
	c.mustWrite(t, "a", 1, "x")
	c.mustLock(t, "b")
	expectReason(t, c.write(t, "a", 2, "late"), api.CodeLeaseLost, "superseded")
	c.expects(t, 1, "x")
}

// A LOCK may name its TTL, and each write renews the lock for that time.
func TestTerraformWritesRenew(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	c := h.terraform("prod")
	as[terraform.LockInfo](t, c.post(t, c.path+"/lock?ttl_ms=3600000", lockBody("a")), http.StatusOK)
	holder := func() api.LockHolder { return c.client.lock(t, "terraform/prod").Holders[0] }
	before := holder()
	if before.TTLMS != 3600_000 {
		t.Errorf("the lock's ttl_ms is %d, want that of its LOCK", before.TTLMS)
	}
	c.mustWrite(t, "a", 1, "x")
	if after := holder(); after.TTLMS != before.TTLMS || !after.ExpiresAt.After(before.ExpiresAt.Time) {
		t.Errorf("before a write the lock was %+v, then %+v, want a later expires_at", before, after)
	}
	for _, ttl := range []string{"99", "86400001", "2h", "-1"} {
		expectProblem(t, c.post(t, c.path+"/lock?ttl_ms="+ttl, lockBody("b")), api.CodeInvalidRequest)
	}
}

// What is not Terraform's is in the way of a lock, too, and described so that Terraform waits for it.
func TestTerraformOtherHolders(t *testing.T) {
	h := newHarness(t, Config{Terraform: true})
	h.acquire(t, "terraform/a", "backup")
	h.acquireAs(t, "terraform/b", api.AcquireRequest{OwnerID: "subtree", Scope: "subtree", TTLMS: &longTTL})
	for state, owner := range map[string]string{"a": "backup", "b/c": "subtree"} {
		holder := as[terraform.LockInfo](t, h.terraform(state).lock(t, "x"), http.StatusLocked)
		if holder.ID == "" || holder.Who != owner || holder.Info == "" {
			t.Errorf("%s: the holder is %+v, want %s with an ID", state, holder, owner)
		}
	}
}

// TestTerraformAccess checks, for each provider of leases, that the key is the password. What a key locked, no other one
// writes or unlocks, also by all that is shown of the lock. Only administrators break locks. The strictest policy that
// the provider supports can be kept.
func TestTerraformAccess(t *testing.T) {
	for leases, policy := range map[store.Provider]string{
		store.ProviderPostgres: `{"require_lease_id":true,"require_principal_owner":true,"require_live_lease":true}`,
		store.ProviderRedis:    `{"require_lease_id":true,"require_principal_owner":true}`,
	} {
		t.Run(string(leases), func(t *testing.T) {
			database := patientDatabase(t)
			service := engine.Config{DeadAfter: time.Minute, Leases: leases}
			if leases == store.ProviderRedis {
				service.Providers = []engine.LeaseProvider{newRedisProvider(t, database.DatabaseURL, redis.Start(t))}
			}
			h := newGatewayWith(t, Config{Terraform: true}, database, service)
			h.guard(t)
			terraformAccess(t, h, policy)
		})
	}
}

func terraformAccess(t *testing.T, h *harness, policy string) {
	admin := h.key(t, "admin", "all:")
	basic := func(bearer string) string {
		key := strings.TrimPrefix(bearer, bearerOf(""))
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+key))
	}
	grants := []string{"read:terraform/prod", "lock:terraform/prod", "write:terraform/prod"}
	rivalKey := h.key(t, "rival", grants...)
	ci, rival := basic(h.key(t, "ci", grants...)), basic(rivalKey)
	c, other := h.terraform("prod", ci), h.terraform("prod", rival)
	c.mustLock(t, "a")
	c.mustWrite(t, "a", 1, "x")
	expectReason(t, other.write(t, "a", 2, "y"), api.CodeLeaseLost, "mismatch")
	expectReason(t, other.unlock(t, lockBody("a")), api.CodeLeaseLost, "mismatch")
	expectProblem(t, other.lock(t, "a"), api.CodeInvalidRequest)
	expectProblem(t, other.unlock(t, ""), api.CodeForbidden)

	seen := as[terraform.LockInfo](t, other.lock(t, "plan"), http.StatusLocked)
	holder := h.by(rivalKey).lock(t, "terraform/prod").Holders[0]
	same := api.AcquireRequest{
		OwnerID: holder.OwnerID, TTLMS: &holder.TTLMS, Metadata: holder.Metadata, RequestID: &seen.ID,
	}
	for _, policy := range []string{"{}", policy} {
		h.by(admin).setPolicy(t, "terraform", policy)
		expectProblem(t, h.by(rivalKey).post(t, lockPath("terraform/prod", "/acquire"), encode(same)), api.CodeInvalidRequest)
	}
	c.mustWrite(t, "a", 2, "y")
	c.expects(t, 2, "y")
	as[api.Broken](t, h.terraform("prod", admin).unlock(t, ""), http.StatusOK)
	other.mustLock(t, "b")
	other.mustUnlock(t, "b")

	expectProblem(t, h.terraform("other", ci).lock(t, "a"), api.CodeForbidden)
	expectProblem(t, h.get(t, "/v1/locks/terraform/prod", ci), api.CodeUnauthenticated) // Basic is for states
	expectProblem(t, h.terraform("prod", "Authorization: Basic eDp5").lock(t, "a"), api.CodeUnauthenticated)
}

// TestTerraformBadInput checks that each bad request is refused for what is wrong with it, and changes nothing.
func TestTerraformBadInput(t *testing.T) {
	h := newHarness(t, Config{Terraform: true, TerraformStateBytesMax: 1 << 14})
	c := h.terraform("prod")
	c.mustLock(t, "a")
	c.mustWrite(t, "a", 1, "x")
	sum := md5.Sum([]byte("another"))
	otherMD5 := "Content-MD5: " + base64.StdEncoding.EncodeToString(sum[:])
	for _, bad := range []struct {
		method, path, body, header string
		code                       api.Code
		words                      string
	}{
		{"LOCK", "", "", "", api.CodeInvalidRequest, "does not describe a lock"},
		{"LOCK", "", `{"Who":"x"}`, "", api.CodeInvalidRequest, "no ID"},
		{"LOCK", "", lockBody(strings.Repeat("x", 257)), "", api.CodeInvalidRequest, "257 bytes"},
		{"LOCK", "", `{"ID":"x","Info":"` + strings.Repeat("x", 5000) + `"}`, "", api.CodeInvalidRequest, "metadata"},
		{"LOCK", "?wait=1", lockBody("x"), "", api.CodeInvalidRequest, "wait"},
		{"LOCK", "/history/x", lockBody("x"), "", api.CodeInvalidRequest, "This path takes GET"},
		{"UNLOCK", "", "{}", "", api.CodeInvalidRequest, "no ID"}, // it breaks nothing
		{"POST", "?ID=", stateText(2, "y"), "", api.CodeTokenRequired, "-lock=false"},
		{"POST", "?ID=other", stateText(2, "y"), "", api.CodeLeaseLost, "may not write"},
		{"POST", "?ID=a&id=a", stateText(2, "y"), "", api.CodeInvalidRequest, `"id"`},
		{"POST", "?ID=a", "plain", "", api.CodeInvalidRequest, "not a state"},
		{"POST", "?ID=a", `{"serial":9007199254740992}`, "", api.CodeInvalidRequest, "serial"},
		{"POST", "?ID=a", `{"serial":2.5}`, "", api.CodeInvalidRequest, "serial"},
		{"POST", "?ID=a", stateText(2, "y"), otherMD5, api.CodeInvalidRequest, "Content-MD5"},
		{"POST", "?ID=a", stateText(2, "y"), "Content-Encoding: gzip", api.CodeInvalidRequest, "Content-Encoding"},
		{"POST", "?ID=a", stateText(2, strings.Repeat("y", 1<<14)), "", api.CodeTooLarge, "--terraform-state-bytes-max"},
		{"DELETE", "", "", "", api.CodeTokenRequired, "-lock=false"},
		{"PUT", "", "", "", api.CodeInvalidRequest, "GET, POST, DELETE, LOCK, UNLOCK"},
		{"GET", "/lock/x", "", "", api.CodeInvalidName, "reserved"},
		{"GET", "/history/999", "", "", api.CodeNotFound, "999"},
		{"GET", "?ID=a", "", "", api.CodeInvalidRequest, "ID"},
	} {
		headers := []string{jsonType}
		if bad.header != "" {
			headers = append(headers, bad.header)
		}
		got := c.send(t, bad.method, c.path+bad.path, bad.body, headers...)
		if problem := expectProblem(t, got, bad.code); !strings.Contains(problem.Detail, bad.words) {
			t.Errorf("%s with %.50q: the detail is %q, want %q in it", got.request, bad.body, problem.Detail, bad.words)
		}
	}
	sum = md5.Sum([]byte(stateText(2, "y")))
	got := c.send(t, http.MethodPost, c.path+"?ID=a", stateText(2, "y"), jsonType,
		"Content-MD5: "+base64.StdEncoding.EncodeToString(sum[:]))
	if result := as[api.WriteResult](t, got, http.StatusOK); result.Replayed || len(c.versions(t)) != 2 {
		t.Errorf("after the refusals, the second write is %+v with %d versions, want a new one and 2", result, len(c.versions(t)))
	}
}

// A gateway serves no states unless it was told to.
func TestTerraformIsOff(t *testing.T) {
	h := newHarness(t, Config{})
	c := h.terraform("prod")
	for _, got := range []answer{c.lock(t, "a"), c.write(t, "a", 1, "x"), c.get(t, c.path), c.post(t, c.path+"/lock", lockBody("a"))} {
		if problem := expectProblem(t, got, api.CodeNotFound); !strings.Contains(problem.Detail, "--terraform") {
			t.Errorf("%s: the detail is %q, want --terraform in it", got.request, problem.Detail)
		}
	}
}

// TestSlow_TerraformLargeStates checks that a state of 60 MiB is stored, read and kept as a version, and that one over the
// limit is refused with the name of its flag.
func TestSlow_TerraformLargeStates(t *testing.T) {
	h := newGateway(t, Config{Terraform: true}, patientDatabase(t))
	h.serveUnchecked(t)
	c := h.terraform("prod")
	c.mustLock(t, "a")
	large := strings.Repeat("y", 60<<20)
	c.mustWrite(t, "a", 1, large)
	c.expects(t, 1, large)
	tooLarge := expectProblem(t, c.write(t, "a", 2, strings.Repeat("y", 65<<20)), api.CodeTooLarge)
	if want := "The body is over the limit of 67108864 bytes (--terraform-state-bytes-max)."; tooLarge.Detail != want {
		t.Errorf("a state of 65 MiB is refused with %q, want %q", tooLarge.Detail, want)
	}
	if kept := c.versions(t); len(kept) != 1 || kept[0].Size != int64(len(stateText(1, large))) {
		t.Errorf("the versions are %+v, want one of %d bytes", kept, len(stateText(1, large)))
	}
}

// TestTerraformAnswersAreCounted checks that a state is read only while --bodies-bytes-max has room for it.
func TestTerraformAnswersAreCounted(t *testing.T) {
	const most = 4 << 20
	h := newGateway(t, Config{Terraform: true, TerraformStateBytesMax: most, BodiesBytesMax: most}, patientDatabase(t))
	h.serveUnchecked(t)
	c := h.terraform("prod")
	c.mustLock(t, "a")
	c.mustWrite(t, "a", 1, strings.Repeat("y", most/2))
	paths := []string{c.path, fmt.Sprintf("%s/history/%d", c.path, c.versions(t)[0].Version)}
	others := &endpoint.BodyShare{Budget: &h.gateway.Bodies, Caller: &limits.Bodies{}}
	if err := others.Grow(most / 2); err != nil {
		t.Fatal(err)
	}
	others.Arrived()
	for _, path := range paths {
		expectProblem(t, c.get(t, path), api.CodeUnavailable)
	}
	others.Free()
	for _, path := range paths {
		if got := c.get(t, path); got.status != http.StatusOK {
			t.Errorf("%s: answered %d once there is room, want 200", got.request, got.status)
		}
	}
}
