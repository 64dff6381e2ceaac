package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// churn is many acquires of one lock through all engines: readers and writers, some of which leave, and tries in
// between.
type churn struct {
	*engines
	lock    store.Name
	granted atomic.Int64
}

// one waits, holds what it is granted for a moment, and gives it back. It must have it all that time.
func (c *churn) one(t *testing.T, index int, random *rand.Rand) {
	request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprint("waiter ", index), Wait: store.WaitMax,
		Mode: store.Exclusive}
	if random.IntN(3) == 0 {
		request.Mode = store.Shared
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*await.Limit)
	defer cancel()
	stays := false
	switch random.IntN(10) {
	case 0, 1:
		time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, cancel)
	case 2:
		request.OwnerID = fmt.Sprint(impatient, index)
		request.Wait = time.Duration(1+random.IntN(300)) * time.Millisecond
	default:
		stays = true
	}
	hold := time.Duration(random.IntN(1000)) * time.Microsecond
	lease, err := c.At(index).Acquire(ctx, request)
	switch {
	case err == nil:
		c.granted.Add(1)
		time.Sleep(hold)
		c.giveBack(t, index+1, lease)
	case stays || !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, context.Canceled):
		t.Errorf("%s got %v", request.OwnerID, err)
	}
}

// giveBack releases a lease through another engine. It must still be the holder's.
func (c *churn) giveBack(t *testing.T, index int, lease store.Lease) {
	_, err := c.At(index).Renew(context.Background(), lease.Ref(), 0)
	if err == nil {
		err = c.At(index).Release(context.Background(), lease.Ref())
	}
	if err != nil {
		t.Errorf("%s was granted token %d, and then: %v", lease.OwnerID, lease.Token, err)
	}
}

// tries acquires without waiting again and again, until ctx ends.
func (c *churn) tries(ctx context.Context, t *testing.T, index int) {
	for i := 0; ctx.Err() == nil; i++ {
		request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprintf("try %d of %d", i, index),
			Mode: []store.Mode{store.Exclusive, store.Shared}[i%2]}
		lease, err := c.At(index).Acquire(context.Background(), request)
		switch {
		case err == nil:
			c.giveBack(t, index+1, lease)
		case !errors.Is(err, store.ErrLeaseHeld):
			t.Errorf("a try got %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// run returns when all have been served.
func (c *churn) run(t *testing.T, waiters int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	trying, stop := context.WithCancel(context.Background())
	defer stop()
	var waiting, tries sync.WaitGroup
	for index := range c.All {
		tries.Go(func() { c.tries(trying, t, index) })
	}
	for index := range waiters {
		random := rand.New(rand.NewPCG(seed, uint64(index)))
		waiting.Go(func() { c.one(t, index, random) })
		if index%8 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waiting.Wait()
	stop()
	tries.Wait()
}

// Acquires are granted first come, first served over all engines, by notifications alone, whichever waiters leave and
// whichever tries come in between.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	c := &churn{engines: newEngines(t, enginetest.New(t), 3, enginetest.NoPoll), lock: "lock"}
	c.recordEvents(t)
	c.run(t, 300)
	line := c.expectOrder(t, c.lock)
	if line.queued < 100 || line.grants < 100 {
		t.Errorf("of the line, only %d waited, and %d were granted the lock", line.queued, line.grants)
	}
	c.ExpectQuiet(t)
}

// outage is how notifications are lost.
type outage struct {
	name   string
	config engine.Config
	pause  time.Duration // between two cuts of the connections
	cuts   int           // at most
}

// The same holds while the connections for notifications are cut: no waiter loses its ticket, and no owner a lease that
// it was granted. In one case there is polling and next to no notification; in the other, reconnecting alone makes up
// for what was missed.
func TestFirstComeFirstServedWithoutNotifications(t *testing.T) {
	t.Parallel()
	for _, o := range []outage{
		{"polling", engine.Config{PollInterval: 20 * time.Millisecond}, 5 * time.Millisecond, 1 << 20},
		{"reconnecting", enginetest.NoPoll, 200 * time.Millisecond, 4},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := &churn{engines: newEngines(t, enginetest.New(t), 3, o.config), lock: "lock"}
			c.recordEvents(t)
			ctx, stop := context.WithCancel(context.Background())
			broken := make(chan int)
			go func() {
				n := 0
				for i := 0; i < o.cuts && ctx.Err() == nil; i++ {
					n += c.BreakListeners(t)
					time.Sleep(o.pause)
				}
				broken <- n
			}()
			c.run(t, 150)
			stop()
			if n := <-broken; n < 3 {
				t.Errorf("the connections were cut %d times", n)
			}
			c.expectOrder(t, c.lock)
			c.ExpectQuiet(t)
		})
	}
}
