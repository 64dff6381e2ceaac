package redislease_test

import (
	"testing"
	"time"

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
					"metadata":                   (*suite).metadata,
					"an expired lease":           (*suite).expired,
					"a command sent twice":       (*suite).sentTwice,
					"beside postgres":            (*suite).besidePostgres,
					"a policy's max_hold":        (*suite).maxHold,
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

// metadata checks that a renewal changes the TTL alone, and that the same request is known again, whatever is in it.
func (s *suite) metadata(t *testing.T) {
	r := request("metadata", "A")
	r.RequestID, r.Metadata = "r1", []byte(`{ "a": [1, 2.0, "<\"ttl_ms\":1>"] }`)
	first := acquire(t, s.leases, r)
	renewed, err := s.renew(t, first.Ref(), 2*time.Minute)
	if err != nil || renewed.TTL != 2*time.Minute || renewed.Late != 0 || string(renewed.Metadata) != string(first.Metadata) {
		t.Errorf("renewed: %+v, %v, want %+v for 2 minutes", renewed, err, first)
	}
	if again := acquire(t, s.leases, r); again.ID != first.ID {
		t.Errorf("the same request got %+v and %+v", first, again)
	}
	r.TTL = time.Minute
	_, err = s.leases.Acquire(await.Context(t), r)
	fails(t, "the request with another TTL", err, store.ErrInvalid)
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

func (s *suite) sentTwice(t *testing.T) {
	answers, err := s.leases.ReserveTwice(await.Context(t), request("twice", "A"))
	if err != nil || answers != [2]string{"reserved", "reserved"} {
		t.Errorf("a reservation that the client library sent twice: %v, %v", answers, err)
	}
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
	if left, err := s.leases.Left(t.Context(), []store.LeaseRef{first.Ref(), second.Ref()}); err != nil ||
		left[0] != 0 || left[1] < long/2 {
		t.Errorf("left are %v, %v, want 0 and an hour", left, err)
	}
}
