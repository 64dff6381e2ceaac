package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/store"
)

// inOneBatch makes calls in the background, each of which begins with one of the batcher's, and sends the latter together
// when all of them wait. It returns when the calls have ended.
func inOneBatch[Q, A any](t *testing.T, b *batcher[Q, A], calls ...func()) {
	t.Helper()
	b.mu.Lock()
	b.inFlight += 2 // so that no batch starts
	b.mu.Unlock()
	ended := make(chan struct{}, len(calls))
	for i, call := range calls {
		go func() {
			call()
			ended <- struct{}{}
		}()
		await.True(t, "the call waits", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.waiting) == i+1
		})
	}
	b.mu.Lock()
	b.inFlight -= 2
	taken := b.take()
	b.mu.Unlock()
	b.run(taken)
	for range calls {
		await.Receive(t, "the end of the call", ended)
	}
}

// newBatchStore returns a Store with a lock that is held, with policies, and with locks that have a fence and a lease that
// has ended.
func newBatchStore(t *testing.T) (s *Store, held store.Lease) {
	t.Helper()
	s, err := Open(t.Context(), Config{DatabaseURL: postgres.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, policy := range []store.Policy{
		{Prefix: "external", Rule: store.RuleStrict, Authority: store.AuthorityExternal},
		{Prefix: "limited", Rule: store.RuleStrict, Authority: store.AuthorityBuiltin, MaxHold: time.Minute},
	} {
		if err := s.PutPolicy(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	held, err = s.Acquire(t.Context(), store.AcquireRequest{Lock: "held", OwnerID: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range []store.Name{"free", "twice", "two owners", "limited"} {
		lease, err := s.Acquire(t.Context(), store.AcquireRequest{Lock: lock, OwnerID: "before"})
		if err := errors.Join(err, s.Release(t.Context(), lease.Ref())); err != nil {
			t.Fatal(err)
		}
	}
	return s, held
}

// TestBatchOfUnequalCalls checks that each call of a batch has its own answer, whatever the others are: acquires of free
// and held locks, under policies, by two owners, and sent twice; and releases that are right, wrong, and sent twice.
func TestBatchOfUnequalCalls(t *testing.T) {
	t.Parallel()
	s, held := newBatchStore(t)
	requests := []store.AcquireRequest{
		{Lock: "external", OwnerID: "a"}, {Lock: "free", OwnerID: "a"}, {Lock: "held", OwnerID: "a"},
		{Lock: "new", OwnerID: "a"}, {Lock: "twice", OwnerID: "a", RequestID: "r"}, {Lock: "twice", OwnerID: "a", RequestID: "r"},
		{Lock: "two owners", OwnerID: "a"}, {Lock: "two owners", OwnerID: "b"},
		{Lock: "limited", OwnerID: "a", TTL: time.Hour, Metadata: []byte(`{"a": 1}`)},
	}
	leases, failures := make([]store.Lease, len(requests)), make([]error, len(requests))
	var calls []func()
	for i, request := range requests {
		calls = append(calls, func() { leases[i], failures[i] = s.Acquire(t.Context(), request) })
	}
	inOneBatch(t, &s.leases.acquires, calls...)
	for i, want := range []error{store.ErrExternalAuthority, nil, store.ErrLeaseHeld, nil, nil, nil} {
		if !errors.Is(failures[i], want) || want == nil && leases[i].Lock != requests[i].Lock {
			t.Errorf("the acquire of %s in a batch returned %+v and %v, want the error %v", requests[i].Lock, leases[i],
				failures[i], want)
		}
	}
	if leases[4].ID != leases[5].ID || leases[4].ID == uuid.Nil {
		t.Errorf("a request that was twice in a batch was granted %+v and %+v, want one lease", leases[4], leases[5])
	}
	if (failures[6] == nil) == (failures[7] == nil) || !errors.Is(errors.Join(failures[6:8]...), store.ErrLeaseHeld) {
		t.Errorf("two owners in a batch got the errors %v and %v, want one lease and one ErrLeaseHeld", failures[6], failures[7])
	}

	free, limited := leases[1], leases[8]
	if failures[8] != nil || string(limited.Metadata) != `{"a": 1}` || limited.ExpiresAt != limited.HoldUntil ||
		limited.TTL != time.Hour || free.Metadata != nil || !free.HoldUntil.IsZero() {
		t.Errorf("the batch granted %+v and %+v (%v), want metadata and a limit of the second only", free, limited, failures[8])
	}

	wrong := held.Ref()
	wrong.ID = uuid.New()
	refs := []store.LeaseRef{wrong, leases[1].Ref(), {Lock: "none", OwnerID: "a", ID: uuid.New(), Token: 1}, leases[4].Ref(),
		leases[4].Ref()}
	calls = nil
	for i, ref := range refs {
		calls = append(calls, func() { failures[i] = s.Release(t.Context(), ref) })
	}
	inOneBatch(t, &s.leases.releases, calls...)
	for i, want := range []error{store.ErrLeaseLost, nil, store.ErrNotFound, nil, nil} {
		if !errors.Is(failures[i], want) {
			t.Errorf("the release of %s in a batch returned %v, want %v", refs[i].Lock, failures[i], want)
		}
	}
	if _, err := s.Renew(t.Context(), held.Ref(), 0); err != nil {
		t.Errorf("the lease that a wrong release named: %v", err)
	}
}

// TestBatchOfAnUnsuitableText checks that a text which the database refuses costs only its own call: the others of the
// batch are granted.
func TestBatchOfAnUnsuitableText(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{DatabaseURL: postgres.Migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	answers := make([]error, 3)
	calls := make([]func(), len(answers))
	for i := range calls {
		request := store.AcquireRequest{Lock: store.Name(fmt.Sprint("lock/", i)), OwnerID: "a"}
		if i == 1 {
			request.Principal = "nul \x00" // principals are not checked: gateways make them
		}
		calls[i] = func() { _, answers[i] = s.Acquire(t.Context(), request) }
	}
	inOneBatch(t, &s.leases.acquires, calls...)
	if answers[0] != nil || answers[1] == nil || answers[2] != nil {
		t.Errorf("the calls of the batch returned %v, want an error of the second only", answers)
	}
}

// TestBatchOutlivesItsFirstCaller checks that a batch is not cut off when the caller of its first call leaves.
func TestBatchOutlivesItsFirstCaller(t *testing.T) {
	t.Parallel()
	h := newHeldBatches()
	cut := make(chan error, 1)
	answer := h.exec
	h.exec = func(ctx context.Context, batch batch[store.Name, store.Name]) error {
		err := answer(ctx, batch)
		cut <- ctx.Err()
		return err
	}
	leaving, leave := context.WithCancel(t.Context())
	left := h.queue(leaving, t, "a")
	await.Receive(t, "the batch", h.sent)
	leave()
	left.Wait()
	h.answers <- nil
	if err := await.Receive(t, "the end of the batch", cut); err != nil {
		t.Errorf("the batch was cut off: %v", err)
	}
}
