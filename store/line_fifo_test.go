package store_test

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
)

// churn is many who wait for one lock over all Services, readers and writers, of whom some give up, while others try.
type churn struct {
	*services
	lock    store.Name
	granted atomic.Int64
}

// one waits, holds what it is granted for a moment, and gives it back. It must have it all that time.
func (c *churn) one(t *testing.T, place int, random *rand.Rand) {
	request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprint("waiter ", place), Wait: store.WaitMax, Mode: store.Exclusive}
	if random.IntN(3) == 0 {
		request.Mode = store.Shared
	}
	ctx, giveUp := context.WithTimeout(context.Background(), 2*soon)
	defer giveUp()
	stays := false
	switch random.IntN(10) {
	case 0, 1:
		time.AfterFunc(time.Duration(random.IntN(300))*time.Millisecond, giveUp)
	case 2:
		request.OwnerID = fmt.Sprint(impatient, place)
		request.Wait = time.Duration(1+random.IntN(300)) * time.Millisecond
	default:
		stays = true
	}
	hold := time.Duration(random.IntN(1000)) * time.Microsecond
	lease, err := c.at(place).Acquire(ctx, request)
	switch {
	case err == nil:
		c.granted.Add(1)
		time.Sleep(hold)
		c.giveBack(t, place+1, lease)
	case stays || !errors.Is(err, store.ErrLeaseHeld) && !errors.Is(err, context.Canceled):
		t.Errorf("%s was told %v", request.OwnerID, err)
	}
}

// giveBack releases a lease, by another Service, that must still be the holder's.
func (c *churn) giveBack(t *testing.T, place int, lease store.Lease) {
	_, err := c.at(place).Renew(context.Background(), lease.Ref(), 0)
	if err == nil {
		err = c.at(place).Release(context.Background(), lease.Ref())
	}
	if err != nil {
		t.Errorf("%s was granted token %d, and then: %v", lease.OwnerID, lease.Token, err)
	}
}

// tries asks without waiting again and again, until ctx ends.
func (c *churn) tries(ctx context.Context, t *testing.T, place int) {
	for i := 0; ctx.Err() == nil; i++ {
		request := store.AcquireRequest{Lock: c.lock, OwnerID: fmt.Sprintf("try %d of %d", i, place), Mode: []store.Mode{store.Exclusive, store.Shared}[i%2]}
		lease, err := c.at(place).Acquire(context.Background(), request)
		switch {
		case err == nil:
			c.giveBack(t, place+1, lease)
		case !errors.Is(err, store.ErrLeaseHeld):
			t.Errorf("a try was told %v", err)
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
	for place := range c.all {
		tries.Go(func() { c.tries(trying, t, place) })
	}
	for place := range waiters {
		random := rand.New(rand.NewPCG(seed, uint64(place)))
		waiting.Go(func() { c.one(t, place, random) })
		if place%8 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waiting.Wait()
	stop()
	tries.Wait()
}

// First come, first served, over all Services, whoever gives up and whoever tries in between: by the notifications alone.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	c := &churn{services: newServices(t, newTestbed(t), 3, noPoll), lock: "lock"}
	c.keepEvents(t, c.lock)
	c.run(t, 300)
	line := c.expectLine(t, c.lock)
	if line.queued < 100 || line.grants < 100 {
		t.Errorf("of the line, only %d waited, and %d were granted the lock", line.queued, line.grants)
	}
	c.expectQuiet(t)
}

// breakListeners ends the listening connections of all Services, and returns how many there were.
func (s *services) breakListeners(t *testing.T) int {
	return s.count(t, `select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and application_name = 'fencegate listener'`)
}

// outage is how notifications are lost.
type outage struct {
	name   string
	config store.ServiceConfig
	pause  time.Duration // between two cuts of the connections
	cuts   int           // at most
}

// The same while the connections for notifications are cut: nobody loses his place, and nobody a lease that he was granted. Either it is
// polled, and there are as good as no notifications; or the reconnecting alone makes up for what was missed.
func TestFirstComeFirstServedWithoutNotifications(t *testing.T) {
	t.Parallel()
	for _, o := range []outage{
		{"polling", store.ServiceConfig{Poll: 20 * time.Millisecond}, 5 * time.Millisecond, 1 << 20},
		{"reconnecting", noPoll, 200 * time.Millisecond, 4},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := &churn{services: newServices(t, newTestbed(t), 3, o.config), lock: "lock"}
			c.keepEvents(t, c.lock)
			ctx, stop := context.WithCancel(context.Background())
			broken := make(chan int)
			go func() {
				n := 0
				for i := 0; i < o.cuts && ctx.Err() == nil; i++ {
					n += c.breakListeners(t)
					time.Sleep(o.pause)
				}
				broken <- n
			}()
			c.run(t, 150)
			stop()
			if n := <-broken; n < 3 {
				t.Errorf("the connections were cut %d times", n)
			}
			c.expectLine(t, c.lock)
			c.expectQuiet(t)
		})
	}
}

// Whoever reconnects has all of his own ask for their places again. A place that turns into a lease meanwhile is not taken for one that
// nobody wants any more.
func TestReadersAreGrantedWhileTheyAskAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	quiet := newServices(t, b, 1, noPoll) // whose connection is never cut
	s := newServices(t, b, 2, noPoll)
	for round := range 3 {
		lock := store.Name(fmt.Sprint("lock ", round))
		writer := quiet.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "writer"})
		var readers []<-chan outcome
		for i := range 60 {
			readers = append(readers, goAcquire(patient(t), s.at(i),
				store.AcquireRequest{Lock: lock, OwnerID: fmt.Sprint("reader ", i), Mode: store.Shared, Wait: store.WaitMax}))
		}
		b.awaitQueued(t, len(readers))
		s.breakListeners(t)
		for _, service := range s.all {
			await(t, "the connection is cut", func() bool { return !service.Listening() })
		}
		await(t, "one listens again, and asks again", func() bool { return s.at(round).Listening() })
		quiet.release(t, 0, writer)
		for i, answers := range readers {
			lease := granted(t, answers)
			if _, err := s.at(i).Renew(patient(t), lease.Ref(), 0); err != nil {
				t.Errorf("%s was granted a lease, and then: %v", lease.OwnerID, err)
			}
			s.release(t, i, lease)
		}
	}
	s.expectQuiet(t)
}
