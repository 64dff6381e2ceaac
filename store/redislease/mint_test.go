package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// errBroken is what a database of a test returns.
var errBroken = errors.New("broken for the test")

// mintSuite is two processes at one server.
type mintSuite struct {
	server        *redis.Server
	db            *mintHook
	leases, other *redislease.Leases
}

// TestLossDuringTheMint checks what becomes of an acquire between its reservation and its confirmation.
func TestLossDuringTheMint(t *testing.T) {
	t.Parallel()
	server, db := redis.Start(t), &mintHook{Database: openDB(t)}
	s := &mintSuite{server, db, open(t, db, redislease.Config{}, server), open(t, db, redislease.Config{}, server)}
	t.Run("the mint fails", s.mintFails)
	t.Run("the key is lost", s.keyIsLost)
	t.Run("another takes the lock, and has the lower token", s.lowerToken)
	t.Run("another takes the lock, and has the higher token", s.higherToken)
	t.Run("the client leaves", s.clientLeaves)
	t.Run("the client leaves while the lease is confirmed", s.clientLeavesLate)
	t.Run("the outcome of the mint is unknown", s.unknown)
}

func (s *mintSuite) deleteKey(lock string) func() error {
	return func() error {
		s.server.Do("DEL", lock)
		return nil
	}
}

func (s *mintSuite) mintFails(t *testing.T) {
	s.db.set(func() error { return store.NotApplied(errBroken) }, nil)
	_, err := s.leases.Acquire(t.Context(), request("fails", "A"))
	fails(t, "the acquire", err, errBroken)
	acquire(t, s.other, request("fails", "B"))
}

func (s *mintSuite) keyIsLost(t *testing.T) {
	r := request("key", "A")
	r.RequestID = "r"
	s.db.set(nil, s.deleteKey("key"))
	_, err := s.leases.Acquire(t.Context(), r)
	fails(t, "the acquire", err, store.ErrProviderUnavailable)
	acquire(t, s.leases, r) // the request_id is free again
}

func (s *mintSuite) lowerToken(t *testing.T) {
	var won store.Lease
	s.db.set(func() error {
		s.server.Do("DEL", "lower")
		won = acquire(t, s.other, request("lower", "B"))
		return nil
	}, nil)
	_, err := s.leases.Acquire(t.Context(), request("lower", "A"))
	fails(t, "the acquire", err, store.ErrProviderUnavailable)
	_, err = s.other.Renew(t.Context(), won.Ref(), 0)
	lost(t, "a renewal of the lease that is shut out at the fence", err, "superseded")
	acquire(t, s.other, request("lower", "C"))
}

func (s *mintSuite) higherToken(t *testing.T) {
	var won store.Lease
	s.db.set(nil, func() error {
		s.server.Do("DEL", "higher")
		won = acquire(t, s.other, request("higher", "B"))
		return nil
	})
	_, err := s.leases.Acquire(t.Context(), request("higher", "A"))
	fails(t, "the acquire", err, store.ErrProviderUnavailable)
	if _, err := s.other.Renew(t.Context(), won.Ref(), 0); err != nil {
		t.Errorf("a renewal of the newest lease: %v", err)
	}
}

func (s *mintSuite) clientLeaves(t *testing.T) {
	s.db.givenBack = func() {
		if strings.Contains(s.server.Do("GET", "client"), "fencing_token") {
			t.Error("the key has the lease before it is given back: the same request sent again would get it")
		}
	}
	defer func() { s.db.givenBack = nil }()
	for _, wait := range []time.Duration{0, store.WaitMax} {
		ctx, cancel := context.WithCancel(t.Context())
		s.db.set(nil, func() error { cancel(); return nil })
		r := request("client", "A")
		r.Wait = wait
		_, err := s.leases.Acquire(ctx, r)
		fails(t, "the acquire", err, context.Canceled)
		release(t, s.other, acquire(t, s.other, request("client", "B")))
	}
}

func (s *mintSuite) clientLeavesLate(t *testing.T) {
	_, err := s.leases.Acquire(&leaving{Context: t.Context(), after: 1}, request("confirm", "A"))
	fails(t, "the acquire", err, context.Canceled)
	r := request("confirm", "A")
	r.RequestID = "r"
	lease, _ := s.leases.Acquire(&leaving{Context: t.Context(), after: 1}, r)
	if again := acquire(t, s.other, r); again.ID != lease.ID || renew(t, s.other, again) != nil {
		t.Errorf("the same request sent again got %+v, want %+v", again, lease)
	}
}

func (s *mintSuite) unknown(t *testing.T) {
	r := request("unknown", "A")
	r.RequestID = "r"
	s.db.set(nil, func() error { return &store.UnavailableError{Outcome: store.OutcomeUnknown, Err: errBroken} })
	_, err := s.leases.Acquire(t.Context(), r)
	fails(t, "the acquire", err, errBroken)
	await.True(t, "the lease is given back", func() bool {
		refs, err := s.db.LeasesElsewhere(t.Context(), store.ProviderRedis, "unknown", 1)
		return err == nil && len(refs) == 0
	})
	acquire(t, s.other, r) // the request_id is free again
}

// leaving is the context of a client that is found gone after so many checks.
type leaving struct {
	context.Context

	after int
}

func (l *leaving) Err() error {
	if l.after--; l.after < 0 {
		return context.Canceled
	}
	return nil
}

// loss is how the key of a lease is lost.
type loss struct {
	name    string
	servers int
	// start runs one of the servers.
	start func(testing.TB, ...string) *redis.Server
	// lose returns the servers that grant the lock from then on.
	lose   func(t *testing.T, servers []*redis.Server, key string) []*redis.Server
	renews bool // the first holder, all the time
}

var losses = []loss{
	{"the server is started empty", 1, redis.Start, func(_ *testing.T, servers []*redis.Server, _ string) []*redis.Server {
		servers[0].RestartEmpty()
		return servers
	}, false},
	// The former master still runs, and answers the gateway of the first holder.
	{"a replica without the key is promoted", 1, redis.Start, func(t *testing.T, _ []*redis.Server, _ string) []*redis.Server {
		return []*redis.Server{redis.Start(t)}
	}, true},
	{"two of three servers lose the key", 3, redis.Start,
		func(_ *testing.T, servers []*redis.Server, key string) []*redis.Server {
			servers[0].Do("DEL", key)
			servers[1].Do("DEL", key)
			return servers
		}, false},
	{"the clocks of two of three servers jump", 3, redis.StartWithClock,
		func(t *testing.T, servers []*redis.Server, key string) []*redis.Server {
			for _, s := range servers[:2] {
				s.ShiftClock(2 * long)
				await.True(t, "the key expires", func() bool { return s.Do("EXISTS", key) == "0" })
			}
			return servers
		}, false},
}

// TestDoubleGrant checks that a lock which Redis grants twice has one writer: both leases run, and as soon as the second
// is granted, its holder writes, and the first is rejected in each way to write.
func TestDoubleGrant(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `create table notes (job text, done_by text); create table jobs (id text, done_by text);
		select fence.protect('jobs', 'jobs/{id}')`)
	for i, of := range losses {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			lock := fmt.Sprintf("jobs/%d", i)
			servers := make([]*redis.Server, of.servers)
			for i := range servers {
				servers[i] = of.start(t)
			}
			for _, server := range servers {
				server.Vote()
			}
			one := open(t, db.Store, redislease.Config{}, servers...)
			first := acquire(t, one, request(lock, "worker 1"))
			// A majority has granted the lease. The last server must have it before it loses it, not after.
			for _, s := range servers {
				await.True(t, "the server has the lease", func() bool {
					return strings.Contains(s.Do("GET", lock), fmt.Sprintf(`"fencing_token":%d`, first.Token))
				})
			}
			writesBy(t, db, first, nil)
			other := open(t, db.Store, redislease.Config{}, of.lose(t, servers, lock)...)

			second := acquire(t, other, request(lock, "worker 2"))
			writesBy(t, db, first, store.ErrStaleToken)
			writesBy(t, db, second, nil)
			writesBy(t, db, first, store.ErrStaleToken)
			if time.Until(first.ExpiresAt) <= 0 || time.Until(second.ExpiresAt) <= 0 {
				t.Errorf("the leases end at %s and %s, want both to run", first.ExpiresAt, second.ExpiresAt)
			}

			_, err := one.Renew(await.Context(t), first.Ref(), 0)
			if of.renews && err != nil {
				t.Errorf("a renewal by the first holder: %v", err)
			} else if !of.renews {
				lost(t, "a renewal by the first holder", err, "superseded")
			}
			if _, err := other.Renew(await.Context(t), second.Ref(), 0); err != nil {
				t.Errorf("a renewal by the second holder: %v", err)
			}
			writesBy(t, db, first, store.ErrStaleToken)
			rows := db.Count(t, `select (select count(*) from notes where job = $1)
				+ (select count(*) from jobs where 'jobs/' || id = $1)`, lock)
			if rows != 4 {
				t.Errorf("there are %d rows, want 4: each worker's in both tables", rows)
			}
		})
	}
}

// writesBy writes under a lease in each way, and expects that each is admitted, or fails with ErrStaleToken.
func writesBy(t *testing.T, db *enginetest.DB, lease store.Lease, want error) {
	t.Helper()
	for name, write := range map[string]func(context.Context, *enginetest.DB, store.Lease, int64) error{
		"of a record": writeRecord, "after fence.guard": writeGuarded, "to a protected table": writeProtected,
	} {
		if err := write(await.Context(t), db, lease, sequences.Add(1)); !errors.Is(err, want) {
			t.Errorf("%s, the write %s with token %d: %v, want %v", lease.OwnerID, name, lease.Token, err, want)
		}
	}
}

// sequences numbers the writes of all tests.
var sequences atomic.Int64

func writeRecord(ctx context.Context, db *enginetest.DB, lease store.Lease, sequence int64) error {
	results, err := db.Write(ctx, []store.Write{enginetest.Put(lease, sequence, lease.OwnerID)})
	if err != nil {
		return err
	}
	return results[0].Err
}

func writeGuarded(ctx context.Context, db *enginetest.DB, lease store.Lease, sequence int64) error {
	return inTx(ctx, db, func(run func(sql string, args ...any) error) error {
		if err := run("select fence.guard($1, $2, $3)", lease.Lock, lease.Token, sequence); err != nil {
			return err
		}
		return run("insert into notes values ($1, $2)", lease.Lock, lease.OwnerID)
	})
}

func writeProtected(ctx context.Context, db *enginetest.DB, lease store.Lease, sequence int64) error {
	return inTx(ctx, db, func(run func(sql string, args ...any) error) error {
		if err := run("select fence.set_token($1, $2)", lease.Token, sequence); err != nil {
			return err
		}
		return run("insert into jobs values ($1, $2)", strings.TrimPrefix(string(lease.Lock), "jobs/"), lease.OwnerID)
	})
}

// inTx runs SQL in a transaction. It returns ErrStaleToken for that rejection.
func inTx(ctx context.Context, db *enginetest.DB, do func(run func(sql string, args ...any) error) error) error {
	const stale = "LF103"
	err := pgx.BeginFunc(ctx, db.SQL, func(tx pgx.Tx) error {
		return do(func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		})
	})
	if rejected := (*pgconn.PgError)(nil); errors.As(err, &rejected) && rejected.Code == stale {
		return store.ErrStaleToken
	}
	return err
}
