package redislease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
	"github.com/fencegate/fencegate/store/redislease"
)

// suite is one provider, with its servers.
type suite struct {
	db      *postgres.Store
	leases  *redislease.Leases
	servers []*redis.Server
}

// TestLeases checks what a lease in Redis promises, for one server and for a majority of three.
func TestLeases(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 3} {
		servers := startVoting(t, count)
		db := openDB(t)
		s := &suite{db, open(t, db, redislease.Config{LookInterval: 20 * time.Millisecond}, servers...), servers}
		t.Run(string(s.leases.Provider()), func(t *testing.T) {
			t.Run("group", func(t *testing.T) { // ends before the servers do
				for name, test := range map[string]func(*suite, *testing.T){
					"one holder at a time":       (*suite).oneHolder,
					"only its own":               (*suite).onlyItsOwn,
					"an expired lease":           (*suite).expired,
					"the same request":           (*suite).sameRequest,
					"a command sent twice":       (*suite).sentTwice,
					"another program":            (*suite).anotherProgram,
					"beside postgres":            (*suite).besidePostgres,
					"a policy's max_hold":        (*suite).maxHold,
					"what is not supported":      (*suite).unsupported,
					"a broken lease":             (*suite).broken,
					"a key lost behind the back": (*suite).lostKey,
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(s, t)
					})
				}
			})
		})
	}
}

func (s *suite) renew(t *testing.T, ref store.LeaseRef, ttl time.Duration) (store.Lease, error) {
	return s.leases.Renew(await.Context(t), ref, ttl)
}

func (s *suite) oneHolder(t *testing.T) {
	asked := request("one", "A")
	asked.Metadata = []byte(`{"a":["<\"ttl_ms\":1>"]}`)
	first := acquire(t, s.leases, asked)
	if store.ProviderOf(first.ID) != s.leases.Provider() || first.TTL != long || first.Token == 0 ||
		string(first.Metadata) != string(asked.Metadata) {
		t.Errorf("the lease is %+v", first)
	}
	held(t, s.leases, "one", "A")
	renewed, err := s.renew(t, first.Ref(), 2*time.Minute)
	if err != nil || renewed.TTL != 2*time.Minute || renewed.Token != first.Token || renewed.Late != 0 ||
		!renewed.GrantedAt.Equal(first.GrantedAt) || string(renewed.Metadata) != string(asked.Metadata) {
		t.Errorf("renewed: %+v, %v, want %+v for 2 minutes", renewed, err, first)
	}
	if again, err := s.renew(t, first.Ref(), 0); err != nil || again.TTL != 2*time.Minute {
		t.Errorf("renewed with the TTL that it has: %+v, %v", again, err)
	}
	release(t, s.leases, first)
	release(t, s.leases, first)
	_, err = s.renew(t, first.Ref(), 0)
	lost(t, "a renewal after the release", err, "released")
	second := acquire(t, s.leases, request("one", "B"))
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
}

func (s *suite) onlyItsOwn(t *testing.T) {
	lease := acquire(t, s.leases, request("own", "A"))
	for what, change := range map[string]func(*store.LeaseRef){
		"lease_id": func(r *store.LeaseRef) { r.ID = store.NewLeaseID(s.leases.Provider()) },
		"owner_id": func(r *store.LeaseRef) { r.OwnerID = "B" },
		"token":    func(r *store.LeaseRef) { r.Token++ },
	} {
		ref := lease.Ref()
		change(&ref)
		_, err := s.renew(t, ref, 0)
		lost(t, "a renewal with another "+what, err, "mismatch")
		_, err = s.leases.ReleaseLease(await.Context(t), ref)
		lost(t, "a release with another "+what, err, "mismatch")
	}
	held(t, s.leases, "own", "A")
	_, err := s.renew(t, store.LeaseRef{Lock: "never", OwnerID: "A", ID: lease.ID, Token: 1}, 0)
	fails(t, "a renewal of what never was", err, store.ErrNotFound)
	_, err = s.renew(t, lease.Ref(), time.Millisecond)
	fails(t, "a renewal for 1 ms", err, store.ErrInvalid)
}

func (s *suite) expired(t *testing.T) {
	r := request("expires", "A")
	r.TTL = short
	first := acquire(t, s.leases, r)
	next := acquire(t, s.leases, waiting("expires", "B"))
	if next.GrantedAt.Before(first.GrantedAt.Add(short)) {
		t.Errorf("granted at %s, the lease before at %s", next.GrantedAt, first.GrantedAt)
	}
	_, err := s.renew(t, first.Ref(), 0)
	lost(t, "a renewal after the expiry", err, "superseded")

	r.Lock = "unused"
	acquire(t, s.leases, r)
	await.True(t, "the look ends the lease in the database", func() bool {
		lock, err := s.db.Lock(t.Context(), "unused")
		return err == nil && lock.State == store.LockExpired
	})
}

func (s *suite) sameRequest(t *testing.T) {
	r := request("again", "A")
	r.RequestID, r.Metadata = "r1", []byte(`{ "a": [1, 2.0] }`)
	first := acquire(t, s.leases, r)
	if again := acquire(t, s.leases, r); again.ID != first.ID || again.Token != first.Token || again.Provider != first.Provider {
		t.Errorf("the same request got %+v and %+v", first, again)
	}
	changed, other := r, r
	changed.TTL, other.OwnerID = time.Minute, "B"
	for what, r := range map[string]store.AcquireRequest{"another TTL": changed, "another owner": other} {
		_, err := s.leases.Acquire(await.Context(t), r)
		fails(t, "the request with "+what, err, store.ErrInvalid)
	}
	release(t, s.leases, first)
	_, err := s.leases.Acquire(await.Context(t), r)
	lost(t, "the request after the release", err, "released")
	acquire(t, s.leases, request("again", "B"))
}

func (s *suite) sentTwice(t *testing.T) {
	answers, err := s.leases.ReserveTwice(await.Context(t), request("twice", "A"))
	if err != nil || answers != [2]string{"reserved", "reserved"} {
		t.Errorf("a reservation that the client library sent twice: %v, %v", answers, err)
	}
}

func (s *suite) anotherProgram(t *testing.T) {
	for _, server := range s.servers {
		server.Do("SET", "foreign", "kCtDZ9VbnYw=", "NX", "PX", "600000")
	}
	held(t, s.leases, "foreign", "(not fencegate)")
	for _, server := range s.servers {
		server.Do("DEL", "foreign")
	}
	lease := acquire(t, s.leases, request("foreign", "A"))
	if answer := s.servers[0].Do("SET", "foreign", "kCtDZ9VbnYw=", "NX", "PX", "600000"); answer == "OK" {
		t.Error("a program with SET NX got a lock that is held here")
	}
	release(t, s.leases, lease)
}

func (s *suite) besidePostgres(t *testing.T) {
	lease, err := s.db.Acquire(t.Context(), request("beside", "pg"))
	if err != nil {
		t.Fatal(err)
	}
	held(t, s.leases, "beside", "pg")
	if err := s.db.Release(t.Context(), lease.Ref()); err != nil {
		t.Fatal(err)
	}
	acquire(t, s.leases, request("beside", "A")) // the reservation of before was given back
}

func (s *suite) maxHold(t *testing.T) {
	policy := store.Policy{
		Prefix: "held", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, MaxHold: time.Second,
	}
	if err := s.db.PutPolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, s.leases, request("held", "A"))
	if lease.HoldUntil.IsZero() || lease.ExpiresAt.After(lease.HoldUntil) {
		t.Errorf("the lease is %+v, want it to end with its hold", lease)
	}
	if renewed, err := s.renew(t, lease.Ref(), 0); err == nil &&
		(renewed.HoldLeft > policy.MaxHold || !renewed.HoldUntil.Equal(lease.HoldUntil)) {
		t.Errorf("renewed: %+v, want no more than %s left", renewed, policy.MaxHold)
	}
	second := acquire(t, s.leases, waiting("held", "B"))
	for _, server := range s.servers {
		server.Do("DEL", "held")
	}
	if _, err := s.leases.Look(t.Context(), "held"); err != nil {
		t.Error(err)
	}
	lost(t, "a renewal of a lease that ended before its hold", renew(t, s.leases, second), "expired")
}

func (s *suite) unsupported(t *testing.T) {
	for what, change := range map[string]func(*store.AcquireRequest){
		"shared":  func(r *store.AcquireRequest) { r.Mode = store.Shared },
		"subtree": func(r *store.AcquireRequest) { r.Scope = store.Subtree },
		"session": func(r *store.AcquireRequest) { r.SessionID, r.TTL = uuid.New(), 0 },
	} {
		r := request("unsupported", "A")
		change(&r)
		_, err := s.leases.Acquire(await.Context(t), r)
		fails(t, what, err, store.ErrUnsupported)
	}
	r := request("too-long", "A")
	r.TTL = store.TTLMax
	if _, err := s.leases.Acquire(await.Context(t), r); s.leases.Provider() == store.ProviderRedlock {
		fails(t, "a TTL above the limit", err, store.ErrInvalid)
	}
}

func (s *suite) broken(t *testing.T) {
	lease := acquire(t, s.leases, request("broken", "A"))
	next := inBackground(await.Context(t), t, s.leases, waiting("broken", "B"))
	broken, err := s.db.Break(t.Context(), "broken", "it hangs")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.leases.Forget(t.Context(), "broken", broken.Token); err != nil {
		t.Fatal(err)
	}
	second := granted(t, "the lock after the break", next)
	if err := s.leases.Forget(t.Context(), "broken", broken.Token); err != nil {
		t.Fatal(err)
	}
	if err := renew(t, s.leases, second); err != nil {
		t.Errorf("a renewal of the lease that was granted after the break: %v", err)
	}
	_, err = s.renew(t, lease.Ref(), 0)
	lost(t, "a renewal after the break", err, "broken")
	_, err = s.leases.ReleaseLease(await.Context(t), lease.Ref())
	lost(t, "a release after the break", err, "broken")
}

func (s *suite) lostKey(t *testing.T) {
	first := acquire(t, s.leases, request("gone", "A"))
	for _, server := range s.servers {
		server.Do("DEL", "gone")
	}
	if left, err := s.leases.Left(t.Context(), []store.LeaseRef{first.Ref()}); err != nil || left[0] != 0 {
		t.Errorf("left is %v, %v, want 0", left, err)
	}
	if _, err := s.leases.Look(t.Context(), "gone"); err != nil {
		t.Error(err)
	}
	if lock, err := s.db.Lock(t.Context(), "gone"); err != nil || lock.State != store.LockExpired {
		t.Errorf("after the look, the lock is %+v (%v), want it expired", lock, err)
	}
	second := acquire(t, s.leases, request("gone", "B"))
	late := store.Write{
		WriteToken: store.WriteToken{Resource: "gone", Token: first.Token},
		Operation:  store.Operation{Kind: store.Put, Key: "k", Value: []byte("v"), ContentType: "text/plain"},
	}
	results, err := s.db.Write(t.Context(), []store.Write{late})
	if err != nil || !errors.Is(results[0].Err, store.ErrStaleToken) {
		t.Errorf("the write of the first holder: %+v, %v, want it rejected as stale", results, err)
	}
	if left, err := s.leases.Left(t.Context(), []store.LeaseRef{first.Ref(), second.Ref()}); err != nil ||
		left[0] != 0 || left[1] < long/2 {
		t.Errorf("left are %v, %v, want 0 and an hour", left, err)
	}
}
