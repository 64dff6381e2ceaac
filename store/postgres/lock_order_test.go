package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// lockOrderFixture is a few locks, in one subtree and beside it, that two gateways write to and acquire in every way at
// once.
type lockOrderFixture struct {
	*testbed
	gateways [2]*postgres.Store
	names    []store.Name
	newest   []atomic.Int64 // the newest token of each name
	subtree  atomic.Int64   // the newest token of the subtree
	sequence atomic.Int64
	refused  atomic.Int64
	admitted atomic.Int64
}

const lockOrderSubtree = "tree"

func newLockOrderFixture(t *testing.T) *lockOrderFixture {
	f := &lockOrderFixture{testbed: newTestbed(t)}
	for i := range f.gateways {
		// A busy machine lets a lock be held for long; a deadlock is found after 1 s.
		f.gateways[i] = openStore(t, postgres.Config{DatabaseURL: f.URL, ConnectionsMax: 8, LockTimeout: 10 * time.Second})
	}
	for i := range 8 {
		f.names = append(f.names, store.Name(fmt.Sprint("flat-", i)), store.Name(fmt.Sprint(lockOrderSubtree, "/", i)))
	}
	f.newest = make([]atomic.Int64, len(f.names))
	for i := range f.names {
		if err := f.acquire(t.Context(), f.gateways[0], i); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestLocksAreTakenInOneOrder checks that sets of writes (puts alone, and beside deletions, preconditions and stale
// tokens), transactions, grants of names and of the subtree above them, releases, breaks and ends of sessions never
// deadlock with each other.
func TestLocksAreTakenInOneOrder(t *testing.T) {
	t.Parallel()
	f := newLockOrderFixture(t)
	ctx := patient(t)
	end := time.Now().Add(1500 * time.Millisecond)
	kinds := []func(context.Context, *postgres.Store) error{
		f.puts, f.puts, f.chains, f.mixed, f.mixed, f.transact, f.transact, f.takeName, f.takeSubtree, f.release, f.settle,
	}
	var clients sync.WaitGroup
	for i, do := range kinds {
		for _, gateway := range f.gateways {
			clients.Go(func() {
				for time.Now().Before(end) && !t.Failed() {
					if err := do(ctx, gateway); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				}
			})
		}
	}
	clients.Wait()
	for _, gateway := range f.gateways {
		if n := gateway.Failures()[store.ReasonDeadlock]; n > 0 {
			t.Errorf("%d statements of a gateway were in a deadlock", n)
		}
	}
	t.Logf("%d writes admitted, %d refused", f.admitted.Load(), f.refused.Load())
	if f.admitted.Load() == 0 || f.refused.Load() == 0 {
		t.Error("no write was refused, or none admitted: the clients did not meet")
	}
}

// acquire acquires a name, or breaks its lock.
func (f *lockOrderFixture) acquire(ctx context.Context, gateway *postgres.Store, i int) error {
	lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: f.names[i], OwnerID: "w", TTL: time.Hour})
	switch {
	case err == nil:
		f.newest[i].Store(lease.Token)
	case errors.Is(err, store.ErrLeaseHeld):
		_, err = gateway.Break(ctx, f.names[i], "test")
	}
	return expected(err)
}

func (f *lockOrderFixture) takeName(ctx context.Context, gateway *postgres.Store) error {
	return f.acquire(ctx, gateway, rand.N(len(f.names)))
}

// takeSubtree tries to acquire the subtree, which locks the fences below.
func (f *lockOrderFixture) takeSubtree(ctx context.Context, gateway *postgres.Store) error {
	lease, err := gateway.Acquire(ctx, store.AcquireRequest{
		Lock: lockOrderSubtree, OwnerID: "w", TTL: time.Hour, Scope: store.Subtree,
	})
	if errors.Is(err, store.ErrLeaseHeld) {
		return f.exclude(ctx, gateway)
	}
	if err == nil {
		f.subtree.Store(lease.Token)
		time.Sleep(time.Millisecond)
		err = gateway.Release(ctx, lease.Ref())
	}
	return expected(err)
}

// exclude breaks the locks below the subtree.
func (f *lockOrderFixture) exclude(ctx context.Context, gateway *postgres.Store) error {
	for _, name := range f.names {
		if name[0] == lockOrderSubtree[0] {
			if _, err := gateway.Break(ctx, name, "test"); err != nil {
				return expected(err)
			}
		}
	}
	return nil
}

// expected drops the errors of a lock that other clients acquire, too.
func expected(err error) error {
	var rejected *store.RejectedError
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrLeaseHeld) || errors.Is(err, store.ErrLeaseLost) ||
		errors.As(err, &rejected) {
		return nil
	}
	return err
}

func (f *lockOrderFixture) release(ctx context.Context, gateway *postgres.Store) error {
	lease, err := gateway.Acquire(ctx, store.AcquireRequest{Lock: f.names[rand.N(len(f.names))], OwnerID: "w",
		TTL: time.Minute})
	if err == nil {
		err = gateway.Release(ctx, lease.Ref())
	}
	return expected(err)
}

// settle ends a session with leases of several names.
func (f *lockOrderFixture) settle(ctx context.Context, gateway *postgres.Store) error {
	session, err := gateway.CreateSession(ctx, store.SessionRequest{OwnerID: "w", TTL: time.Hour})
	if err != nil {
		return err
	}
	for range 4 {
		_, err := gateway.Acquire(ctx, store.AcquireRequest{
			Lock: f.names[rand.N(len(f.names))], OwnerID: "w", SessionID: session.ID,
		})
		if expected(err) != nil {
			return err
		}
	}
	_, err = gateway.EndSession(ctx, session.ID)
	for store.OutcomeOf(err) == store.OutcomeUnknown { // a fence was locked for long, on a busy machine
		_, err = gateway.EndSession(ctx, session.ID)
	}
	return err
}

// writeToken is the newest token of a name, or of the subtree.
func (f *lockOrderFixture) writeToken(i int) store.WriteToken {
	token := f.newest[i].Load()
	if subtree := f.subtree.Load(); f.names[i][0] == lockOrderSubtree[0] && rand.N(2) == 0 && subtree > 0 {
		token = subtree
	}
	return store.WriteToken{Resource: f.names[i], Token: max(token, 1), Sequence: new(f.sequence.Add(1))}
}

// puts writes a set of puts, which takes the fast path.
func (f *lockOrderFixture) puts(ctx context.Context, gateway *postgres.Store) error {
	return f.write(ctx, gateway, func([]store.Write) {})
}

// chains writes a set with several puts to each resource, which mostly are chains.
func (f *lockOrderFixture) chains(ctx context.Context, gateway *postgres.Store) error {
	var writes []store.Write
	for _, i := range rand.Perm(len(f.names))[:4] {
		token := f.writeToken(i)
		for range 3 {
			writes = append(writes, store.Write{WriteToken: token, Operation: putOf("", "v").Operation})
			token.Sequence = new(f.sequence.Add(1))
		}
	}
	results, err := gateway.Write(ctx, writes)
	for _, result := range results {
		f.count(result.Err)
	}
	return err
}

// mixed writes a set with a deletion, a precondition and a stale token.
func (f *lockOrderFixture) mixed(ctx context.Context, gateway *postgres.Store) error {
	return f.write(ctx, gateway, func(writes []store.Write) {
		writes[0].Operation = store.Operation{Kind: store.Delete, Key: "k"}
		writes[1].Expect = new(int64(0))
		writes[2].Token = 1
	})
}

func (f *lockOrderFixture) write(ctx context.Context, gateway *postgres.Store, change func([]store.Write)) error {
	var writes []store.Write
	for _, i := range rand.Perm(len(f.names))[:6] {
		writes = append(writes, store.Write{WriteToken: f.writeToken(i), Operation: putOf("", "v").Operation})
	}
	change(writes)
	results, err := gateway.Write(ctx, append(writes, writes[:rand.N(4)]...))
	for _, result := range results {
		f.count(result.Err)
	}
	return err
}

func (f *lockOrderFixture) transact(ctx context.Context, gateway *postgres.Store) error {
	var transaction store.Transaction
	for _, i := range rand.Perm(len(f.names))[:3] {
		token := f.writeToken(i)
		transaction.Tokens = append(transaction.Tokens, token)
		transaction.Operations = append(transaction.Operations,
			store.ResourceOperation{Resource: token.Resource, Operation: putOf("", "v").Operation})
	}
	_, err := gateway.Transact(ctx, transaction)
	f.count(err)
	return expected(err)
}

func (f *lockOrderFixture) count(err error) {
	if err == nil {
		f.admitted.Add(1)
	} else {
		f.refused.Add(1)
	}
}
