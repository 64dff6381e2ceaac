package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// losses are all ways to lose an answer.
var losses = []fault{answerLost, requestLost, answerCut, badGateway}

// However answers are lost, an acquire makes one lease, and its own.
func TestNoSecondLease(t *testing.T) {
	network, client, lock := lossy(t)
	ctx := patient(t)
	for round := range 3 {
		name := fmt.Sprintf("%s/%d", lock, round)
		network.harm("/acquire", losses...)
		lease, err := client.Acquire(ctx, name)
		check(t, err)
		if got := network.seen(); got != 5 {
			t.Errorf("it was sent %d times, want 5: four failed", got)
		}
		state, err := client.API().Lock(ctx, name)
		if err != nil || len(state.Holders) != 1 || state.FencingToken != lease.FencingToken() || state.Holders[0].FencingToken != lease.FencingToken() {
			t.Errorf("the lock is %+v, %v, want one lease with token %d", state, err, lease.FencingToken())
		}
		if _, err := lease.Put(ctx, "k", []byte("v")); err != nil {
			t.Error(err)
		}
		network.harm("/release", losses...)
		check(t, lease.Release(ctx))
		if state, err := client.API().Lock(ctx, name); err != nil || state.State != "free" || state.FencingToken != lease.FencingToken() {
			t.Errorf("the lock is %+v, %v", state, err)
		}
	}
}

// A caller who gives up leaves no lease behind that nobody knows of.
func TestAnUnheardLeaseIsGivenBack(t *testing.T) {
	network, client, lock := lossy(t)
	network.harm("/acquire", answerLost, answerLost, answerLost, answerLost, answerLost)
	_, err := client.Acquire(patient(t), lock, lockclient.WithTTL(time.Hour))
	if !errors.Is(err, lockclient.ErrUnavailable) || !errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Fatalf("got %v", err)
	}
	eventually(t, func() bool {
		state, err := client.API().Lock(t.Context(), lock)
		return err == nil && state.State == "free"
	})

	network.harm("/acquire", held)
	ctx, cancel := context.WithCancel(patient(t))
	var asking sync.WaitGroup
	asking.Go(func() {
		if _, err := client.Acquire(ctx, lock, lockclient.WithTTL(time.Hour)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	eventually(t, func() bool { return network.seen() == 1 })
	cancel()
	asking.Wait()
	eventually(t, func() bool { return network.seen() == 2 })
}

// An answer may come when the lease that it tells of has been replaced. Times in it don't make it good.
func TestALateGrantIsNotTrusted(t *testing.T) {
	network, client, lock := lossy(t)
	direct, _ := shared(t)
	ctx := patient(t)
	network.harm("/acquire", answerHeld)
	var asking sync.WaitGroup
	asking.Go(func() {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(300*time.Millisecond))
		if !errors.Is(err, lockclient.ErrLeaseLost) || lease != nil {
			t.Errorf("got %v, %v", lease, err)
		}
	})
	eventually(t, func() bool { return network.seen() == 1 })
	eventually(t, func() bool {
		state, err := direct.API().Lock(ctx, lock)
		return err == nil && state.State == "expired"
	})
	newer, err := direct.Acquire(ctx, lock)
	check(t, err)
	network.released <- struct{}{}
	asking.Wait()
	check(t, newer.Release(ctx))

	// One that has not been replaced, and is not past, is renewed before it is given out.
	network.harm("/acquire", answerHeld)
	asking.Go(func() {
		lease, err := client.Acquire(ctx, lock, lockclient.WithTTL(10*time.Second))
		if err != nil || lease.ExpiresIn() < 8900*time.Millisecond {
			t.Errorf("got %v, trusted for %v", err, lease.ExpiresIn())
			return
		}
		lease.ReleaseOnce()
	})
	eventually(t, func() bool { return network.seen() == 1 })
	time.Sleep(1200 * time.Millisecond) // more than the tenth of the TTL that is let pass
	network.released <- struct{}{}
	asking.Wait()
}

// However answers are lost, a write is applied once: the versions of a record count its writes.
func TestNoSecondWrite(t *testing.T) {
	network, client, lock := lossy(t)
	ctx := patient(t)
	lease, err := client.Acquire(ctx, lock)
	check(t, err)
	defer lease.ReleaseOnce()
	first, err := lease.Put(ctx, "k", []byte("1"))
	check(t, err)

	network.harm("/k", losses...)
	second, err := lease.Put(ctx, "k", []byte("2"), lockclient.IfVersion(first.Version))
	check(t, err)
	if network.seen() != 5 || !second.Replayed || *second.Sequence != 2 || second.Version != first.Version+1 {
		t.Errorf("after %d calls: %+v, want the second version", network.seen(), second)
	}
	network.harm("/transactions", losses...)
	result, err := lease.Transaction(ctx, lockclient.PutOp("k", []byte("3"), "text/plain"), lockclient.PutOp("other", nil, ""))
	check(t, err)
	if network.seen() != 5 || !result.Replayed || len(result.Results) != 2 {
		t.Errorf("after %d calls: %+v", network.seen(), result)
	}
	record, err := client.API().Get(ctx, lock, "k")
	if err != nil || string(record.Value) != "3" || record.ContentType != "text/plain" || *record.Token.Sequence != 3 {
		t.Errorf("the record is %+v, %v", record, err)
	}
	network.harm("/k", losses...)
	if deleted, err := lease.Delete(ctx, "k"); err != nil || !deleted.Replayed {
		t.Errorf("deleted %+v, %v", deleted, err)
	}
}

// A write whose answer was lost is not called rejected when a newer holder's writes hide what became of it.
func TestAnOutcomeThatNobodyCanTell(t *testing.T) {
	network, client, lock := lossy(t)
	direct, _ := shared(t)
	ctx := patient(t)
	for what, test := range map[string]struct {
		fault   fault
		written bool // by the newer holder
		want    bool
	}{
		"applied, and written over":    {answerLost, true, true},
		"lost, and written by another": {requestLost, true, true},
		"lost, and nobody has written": {requestLost, false, false},
	} {
		lease, err := client.Acquire(ctx, lock)
		check(t, err)
		network.harm("/k", test.fault, held)
		patience, cancel := context.WithCancel(ctx)
		var writing sync.WaitGroup
		var first error
		writing.Go(func() { _, first = lease.Put(patience, "k", []byte("old")) })
		eventually(t, func() bool { return network.seen() == 2 }) // the second is kept on its way
		_, err = direct.API().Break(ctx, lock, api.BreakRequest{Reason: "test"})
		check(t, err)
		newer, err := direct.Acquire(ctx, lock)
		check(t, err)
		if test.written {
			_, err = newer.Put(ctx, "k", []byte("new"))
			check(t, err)
		}
		network.released <- struct{}{}
		writing.Wait()
		cancel()
		if !errors.Is(first, lockclient.ErrTokenStale) || errors.Is(first, lockclient.ErrOutcomeUnknown) != test.want {
			t.Errorf("%s: %v", what, first)
		}
		newer.ReleaseOnce()
	}
}

// Writes of one lease don't overtake each other, whoever sends them, and those of several leases don't wait for each
// other in a circle.
func TestWritesAreInOrder(t *testing.T) {
	network, client, lock := lossy(t)
	ctx := patient(t)
	var leases []*lockclient.Lease
	for _, name := range []string{"/a", "/b"} {
		lease, err := client.Acquire(ctx, lock+name)
		check(t, err)
		t.Cleanup(lease.ReleaseOnce)
		leases = append(leases, lease)
	}
	network.harm("", answerLost, none, requestLost, none, none, answerCut, none, none, answerLost)
	var writing sync.WaitGroup
	for i := range 20 {
		writing.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = leases[0].Put(ctx, "k", fmt.Append(nil, i))
			case 1:
				_, err = leases[1].PutJSON(ctx, "k", i)
			case 2:
				_, err = client.Transact(ctx, []*lockclient.Lease{leases[0], leases[1]}, opsOf(i, leases)...)
			default:
				_, err = client.Transact(ctx, []*lockclient.Lease{leases[1], leases[0], leases[1]}, opsOf(i, leases)...)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	for _, lease := range leases {
		fence, err := client.API().Fence(ctx, lease.Name())
		if err != nil || fence.LastToken != lease.FencingToken() || fence.LastSequence != 15 {
			t.Errorf("the fence is %+v, %v, want 15 writes", fence, err)
		}
	}
}

// opsOf puts a record under each lease.
func opsOf(i int, leases []*lockclient.Lease) []api.Op {
	var ops []api.Op
	for _, lease := range leases {
		op := lockclient.PutOp("k", fmt.Append(nil, i), "")
		op.Resource = lease.Name()
		ops = append(ops, op)
	}
	return ops
}

// A heartbeat outlives lost answers and an outage that is shorter than the TTL, and tells of them.
func TestHeartbeatsOutliveAnOutage(t *testing.T) {
	network, client, lock := lossy(t)
	var mu sync.Mutex
	var told []error
	lease, err := client.Acquire(patient(t), lock, lockclient.WithTTL(20*time.Second), lockclient.WithHeartbeat(
		lockclient.HeartbeatEvery(50*time.Millisecond),
		lockclient.OnHeartbeatError(func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		})))
	check(t, err)
	defer lease.ReleaseOnce()
	network.harm("/renew", losses...)
	eventually(t, func() bool { return network.seen() >= 6 && lease.HeartbeatErr() == nil })
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 4 || !errors.Is(told[0], lockclient.ErrUnavailable) || lease.Err() != nil {
		t.Errorf("told %v; %v", told, lease.Err())
	}
}

// An outage that is longer than the TTL ends the context, and nothing hangs.
func TestHeartbeatsEndWithTheLease(t *testing.T) {
	network, client, lock := lossy(t)
	lease, err := client.Acquire(patient(t), lock, lockclient.WithTTL(500*time.Millisecond), lockclient.WithHeartbeat())
	check(t, err)
	outage := make([]fault, 10_000)
	for i := range outage {
		outage[i] = []fault{held, requestLost, badGateway}[i%3]
	}
	network.harm("/renew", outage...)
	// What is renewed by a lost answer does not count: nobody has heard of it.
	if cause := done(t, lease.Context()); !errors.Is(cause, lockclient.ErrLeaseLost) {
		t.Errorf("the cause is %v", cause)
	}
	eventually(t, func() bool { return errors.Is(lease.HeartbeatErr(), lockclient.ErrLeaseLost) })
}

// Tries are bounded also where nobody ever answers.
func TestTriesAreBounded(t *testing.T) {
	client := newClient(t, "http://"+closedAddress(t))
	ctx := patient(t)
	began := time.Now()
	_, err := client.AcquireWithRetry(ctx, "a", lockclient.RetryPolicy{Attempts: 3, Base: 1, Max: 1})
	if !errors.Is(err, lockclient.ErrUnavailable) || errors.Is(err, lockclient.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := client.Acquire(ctx, "a"); !errors.Is(err, lockclient.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := client.Acquire(short, "a", lockclient.WithWait(time.Hour)); err == nil || short.Err() == nil {
		t.Errorf("got %v after %v, want an error at the end of ctx", err, time.Since(began))
	}
}
