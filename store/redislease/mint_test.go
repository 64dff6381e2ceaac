package redislease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
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
