package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
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

// TestLooksOfSeveralGateways checks that gateways which settle the same leases at the same time, in any order, are in no
// deadlock.
func TestLooksOfSeveralGateways(t *testing.T) {
	t.Parallel()
	const leases = 500
	db := enginetest.New(t)
	db.Exec(t, `insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at)
		select 'lock/' || n, n, gen_random_uuid(), 'A', 30000, now(), now() + interval '1 hour'
		from generate_series(1, $1) n`, leases)
	db.Exec(t, "analyze fence.leases")
	var ascending []store.LeaseStatus
	for i := range leases {
		ref := store.LeaseRef{Lock: store.Name(fmt.Sprint("lock/", i+1)), Token: int64(i + 1)}
		ascending = append(ascending, store.LeaseStatus{LeaseRef: ref, Left: long})
	}
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	var gateways sync.WaitGroup
	for i := range 4 {
		gateways.Go(func() {
			for range 3 {
				if err := db.SettleLeases(await.Context(t), [][]store.LeaseStatus{ascending, descending}[i%2]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	gateways.Wait()
}

// TestForeignValues checks that whatever another program keeps at the key holds the lock, at a bounded cost, and that
// nothing but a break deletes it.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	const bytes, ms = 1 << 20, 253402300799999 // until after the year 9999
	server := redis.Start(t)
	leases := open(t, openDB(t), redislease.Config{}, server)
	sent := func() int {
		_, rest, _ := strings.Cut(server.Do("INFO", "stats"), "total_net_output_bytes:")
		text, _, _ := strings.Cut(rest, "\r\n")
		n, _ := strconv.Atoi(text)
		return n
	}
	before := sent()
	for i, value := range []string{
		"", "1", "[]", "kCtDZ9VbnYw=", `{"fencegate":1}`, `{"fencegate":1,"fencing_token":"x"}`,
		`{"fencegate":1,"owner_id":"A","lease_id":"?"}`, `{"fencegate":1,"owner_id":5}`, strings.Repeat("[", 10000),
		strings.Repeat("x", bytes), `{"fencegate":1,"owner_id":"` + strings.Repeat("x", bytes) + `"}`,
	} {
		lock := fmt.Sprint("foreign/", i)
		server.Do("SET", lock, value, "PX", fmt.Sprint(ms))
		_, err := leases.Acquire(await.Context(t), request(lock, "A"))
		var found *store.HeldError
		if !errors.As(err, &found) || found.OwnerID != "(not fencegate)" || found.Remaining < time.Hour {
			t.Errorf("%.40q: %v, want it held by another program for long", value, err)
		}
		ref := store.LeaseRef{Lock: store.Name(lock), OwnerID: "A", ID: store.NewLeaseID(store.ProviderRedis), Token: 1}
		_, err = leases.Renew(await.Context(t), ref, 0)
		fails(t, "a renewal", err, store.ErrNotFound)
		if n := server.Do("STRLEN", lock); n != fmt.Sprint(len(value)) {
			t.Errorf("%.40q: %s bytes are left", value, n)
		}
	}
	if n := sent() - before; n > bytes {
		t.Errorf("the server sent %d bytes", n)
	}
}

// TestMinorityOfAnotherProgram checks that an acquire does not wait again and again for a server that does not answer,
// where nobody has a majority.
func TestMinorityOfAnotherProgram(t *testing.T) {
	t.Parallel()
	servers := startVoting(t, 3)
	leases := open(t, openDB(t), redislease.Config{Timeout: time.Second}, servers...)
	servers[0].Do("SET", "lock", "another program's", "PX", "600000")
	servers[2].Freeze()
	defer servers[2].Thaw()
	_, err := leases.Acquire(await.Context(t), request("lock", "A"))
	held := errors.Is(err, store.ErrLeaseHeld)
	if failed := leases.Stats()[2].Errors[redislease.KindTimeout]; !held || failed > 6 {
		t.Errorf("%v, after %d calls of the server that does not answer", err, failed)
	}
}

// TestForget checks that a break deletes locks of any program, and nothing else that has the name of a lock.
func TestForget(t *testing.T) {
	t.Parallel()
	server := redis.Start(t)
	leases := open(t, openDB(t), redislease.Config{}, server)
	acquire(t, leases, request("lease", "A"))
	server.Do("SET", "persisted", server.Do("GET", "lease"))
	server.Do("SET", "other program", "kCtDZ9VbnYw=", "PX", "600000")
	server.Do("SET", "text", "a user's")
	server.Do("HSET", "hash", "field", "a user's")
	server.Do("RPUSH", "expiring list", "a user's")
	server.Do("PEXPIRE", "expiring list", "600000")
	for lock, deleted := range map[store.Name]bool{
		"lease": true, "persisted": true, "other program": true, "free": true,
		"text": false, "hash": false, "expiring list": false,
	} {
		err := leases.Forget(await.Context(t), lock, 0)
		if left := server.Do("EXISTS", string(lock)) == "1"; left == deleted {
			t.Errorf("%s: the key is there: %t", lock, left)
		}
		var failure *redislease.Failure
		switch {
		case deleted && err != nil:
			t.Errorf("%s: %v", lock, err)
		case !deleted && (!errors.Is(err, store.ErrUnavailable) || !errors.As(err, &failure) ||
			failure.Kind != redislease.KindWrongType || !strings.Contains(err.Error(), "something else than a lock")):
			t.Errorf("%s: %v, want ErrUnavailable of the kind wrong_type", lock, err)
		}
	}
}

// releaseHook is a database that does something before it releases a lease.
type releaseHook struct {
	redislease.Database

	before func() error
}

func (h *releaseHook) ReleaseLease(ctx context.Context, ref store.LeaseRef) (store.Released, error) {
	if err := h.before(); err != nil {
		return store.Released{}, err
	}
	return h.Database.ReleaseLease(ctx, ref)
}

// TestReleaseClosesTheFenceFirst checks that a lock is free only after the releaser can't write any more, and that it
// stays held if the fence can't be closed.
func TestReleaseClosesTheFenceFirst(t *testing.T) {
	t.Parallel()
	db, server := &releaseHook{Database: openDB(t)}, redis.Start(t)
	leases := open(t, db, redislease.Config{}, server)
	lease := acquire(t, leases, request("lock", "A"))
	broken := errors.New("broken for the test")
	db.before = func() error { return store.NotApplied(broken) }
	_, err := leases.ReleaseLease(await.Context(t), lease.Ref())
	fails(t, "a release without the database", err, broken)
	held(t, leases, "lock", "A")
	db.before = func() error {
		held(t, leases, "lock", "A")
		return nil
	}
	release(t, leases, lease)
	acquire(t, leases, request("lock", "B"))
}

// TestWaiterInPostgres checks a lock whose leases move from Redis to PostgreSQL: a waiter there is granted the lock as soon
// as an acquire in Redis shows that the lease has ended, and that acquire does not overtake it.
func TestWaiterInPostgres(t *testing.T) {
	t.Parallel()
	db, server := openDB(t), redis.Start(t)
	inRedis := open(t, db, redislease.Config{LookInterval: time.Hour}, server)
	inPostgres := enginetest.Run(t, db, engine.Config{PollInterval: never})
	acquire(t, inRedis, request("lock", "A"))
	next := make(chan outcome, 1)
	go func() {
		lease, err := inPostgres.Acquire(await.Context(t), waiting("lock", "B"))
		next <- outcome{lease, err}
	}()
	await.True(t, "B waits", func() bool {
		lock, err := db.Lock(t.Context(), "lock")
		return err == nil && lock.QueueLength == 1
	})
	server.Do("DEL", "lock")
	held(t, inRedis, "lock", "")
	if lease := granted(t, "the lock for the waiter in PostgreSQL", next); lease.OwnerID != "B" {
		t.Errorf("granted to %s", lease.OwnerID)
	}
	held(t, inRedis, "lock", "B")
}
