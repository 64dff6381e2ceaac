package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/gatewayprocess"
	"github.com/fencegate/fencegate/lockclient"
)

// queued waits until so many stand in line.
func queued(t *testing.T, client *lockclient.Client, lock string, want int) {
	t.Helper()
	eventually(t, func() bool {
		state, err := client.API().Lock(t.Context(), lock)
		return err == nil && len(state.Queue) == want
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	first, err := client.Acquire(ctx, lock)
	check(t, err)
	var mu sync.Mutex
	var order []string
	var waiting sync.WaitGroup
	for i := range 4 {
		owner := fmt.Sprint("owner-", i)
		waiting.Go(func() {
			lease, err := client.Acquire(ctx, lock, lockclient.WithLeaseOwner(owner), lockclient.WithWait(time.Hour))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, owner)
			mu.Unlock()
			lease.ReleaseOnce()
		})
		queued(t, client, lock, i+1)
	}
	check(t, first.Release(ctx))
	waiting.Wait()
	if !slices.IsSorted(order) || len(order) != 4 {
		t.Errorf("served in the order %v", order)
	}
}

func TestWaitsEnd(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	held, err := client.Acquire(ctx, lock)
	check(t, err)
	defer held.ReleaseOnce()
	_, err = client.Acquire(ctx, lock, lockclient.WithWait(100*time.Millisecond))
	if !errors.Is(err, lockclient.ErrLockHeld) || lockclient.Holder(err) == nil {
		t.Errorf("after the wait: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := client.Acquire(short, lock, lockclient.WithWait(time.Hour)); err == nil {
		t.Error("granted")
	}
	cancelled, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := client.Acquire(cancelled, lock, lockclient.WithWait(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("after the cancellation: %v", err)
		}
	})
	queued(t, client, lock, 1)
	cancel()
	waiting.Wait()
	queued(t, client, lock, 0)
}

// A lease that was waited for longer than its TTL is trusted from its grant on, not from its request.
func TestALeaseThatWasWaitedForIsTrusted(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	const ttl = 2 * time.Second
	first, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour))
	check(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(ttl), lockclient.WithWait(time.Hour))
		if err != nil {
			t.Error(err)
			return
		}
		defer lease.ReleaseOnce()
		if left := lease.ExpiresIn(); !lease.Valid() || left > ttl*99/100 {
			t.Errorf("it is trusted for %v, %v", left, lease.Err())
		}
		next, err := client.AcquireWithRetry(ctx, lock, often)
		if err != nil || lease.Valid() {
			t.Errorf("another holds the lock, %v, and it is valid: %t", err, lease.Valid())
		}
		next.ReleaseOnce()
	})
	queued(t, client, lock, 1)
	time.Sleep(ttl + ttl/2) // the wait itself, longer than the TTL
	check(t, first.Release(ctx))
	waiting.Wait()
}

func TestDeadlocksAreTold(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	take := func(owner, name string, wait time.Duration) (*lockclient.Lease, error) {
		return client.Acquire(ctx, lock+name, lockclient.WithLeaseOwner(owner), lockclient.WithWait(wait))
	}
	one, err := take("one", "/a", 0)
	check(t, err)
	two, err := take("two", "/b", 0)
	check(t, err)
	defer two.ReleaseOnce()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		lease, err := take("two", "/a", time.Hour)
		if err != nil {
			t.Error(err)
		}
		lease.ReleaseOnce()
	})
	queued(t, client, lock+"/a", 1)
	_, err = take("one", "/b", time.Hour)
	if cycle := lockclient.Cycle(err); !errors.Is(err, lockclient.ErrDeadlock) || len(cycle) != 2 || cycle[0].OwnerID != "one" {
		t.Errorf("got %v with the cycle %v", err, cycle)
	}
	check(t, one.Release(ctx))
	waiting.Wait()
}

func TestSharedAndSubtreeLeases(t *testing.T) {
	client, lock := shared(t)
	ctx := patient(t)
	var readers []*lockclient.Lease
	for range 2 {
		reader, err := client.Acquire(ctx, lock, lockclient.Shared())
		check(t, err)
		readers = append(readers, reader)
	}
	if _, err := client.Acquire(ctx, lock); !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("a writer beside readers: %v", err)
	}
	if _, err := readers[0].Put(ctx, "k", nil); !errors.Is(err, lockclient.ErrTokenStale) || readers[0].Err() != nil {
		t.Errorf("a reader that writes: %v, %v", err, readers[0].Err())
	}
	for _, reader := range readers {
		check(t, reader.Release(ctx))
	}
	tree, err := client.Acquire(ctx, lock, lockclient.Subtree())
	check(t, err)
	defer tree.ReleaseOnce()
	if _, err := client.Acquire(ctx, lock+"/a/b"); !errors.Is(err, lockclient.ErrLockHeld) {
		t.Errorf("below: %v", err)
	}
	if _, err := tree.Put(ctx, "k", nil); err != nil {
		t.Error(err)
	}
	if _, err := tree.Put(ctx, "k", nil, lockclient.OnResource(lock+"/a/b")); err != nil {
		t.Error(err)
	}
	op := lockclient.PutOp("k", []byte("v"), "")
	op.Resource = lock + "/c"
	if _, err := tree.Transaction(ctx, op, lockclient.DeleteOp("k")); err != nil {
		t.Error(err)
	}
	if _, err := tree.Put(ctx, "k", nil, lockclient.OnResource("elsewhere")); err == nil || tree.Err() != nil {
		t.Errorf("elsewhere: %v, %v", err, tree.Err())
	}
}

// A waiter goes on at another gateway when its own is killed, or ends in good order, and gets the lock.
func TestAWaiterOutlivesItsGateway(t *testing.T) {
	for how, end := range map[string]func(*gatewayprocess.Process){
		"killed":  func(p *gatewayprocess.Process) { p.Kill() },
		"stopped": func(p *gatewayprocess.Process) { _ = p.Stop() },
	} {
		t.Run(how, func(t *testing.T) {
			first, second, client := pair(t)
			ctx := patient(t)
			direct := newClient(t, second.URL)
			held, err := direct.Acquire(ctx, "job", lockclient.WithTTL(time.Hour))
			check(t, err)
			var waiting sync.WaitGroup
			waiting.Go(func() {
				lease, err := client.Acquire(ctx, "job", lockclient.WithWait(time.Hour))
				if err != nil || lease.FencingToken() <= held.FencingToken() {
					t.Errorf("got %v", err)
				}
				lease.ReleaseOnce()
			})
			queued(t, direct, "job", 1)
			end(first)
			eventually(t, func() bool {
				lock, err := direct.API().Lock(ctx, "job")
				return err == nil && len(lock.Queue) == 1 && lock.Queue[0].OwnerID == client.Owner()
			})
			check(t, held.Release(ctx))
			waiting.Wait()
			lock, err := direct.API().Lock(ctx, "job")
			if err != nil || len(lock.Holders) != 0 {
				t.Errorf("the lock is %+v, %v", lock, err)
			}
		})
	}
}
