//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/bench/rig"
)

const (
	// calm is how long a waiter waits, at least, before the lock is released to it. What the service still does for a wait
	// that has just begun is not the wake-up: etcd sends a new watcher nothing until a loop of its own, every 100 ms, has
	// come to it.
	calm = 150 * time.Millisecond
	// pairsMax hand locks to and fro at the same time, one hand-off after the other, so that not every hand-off costs the
	// calm.
	pairsMax = 32
	// breath is before every release: what the pair before has left to do is over.
	breath = 2 * time.Millisecond

	lookInterval = time.Millisecond
)

// wakeUps measures in turn, in the services with a queue, the time from just before a release is sent until the acquire
// of the waiter has returned.
func wakeUps(ctx context.Context, r *rig.Rig, services []service, count int) error {
	services = slices.DeleteFunc(slices.Clone(services), func(s service) bool { return !s.queues })
	for _, s := range services { // warms up
		if _, err := s.handOffs(ctx, r.Prefix+"/wake-up", max(1, count/10)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.InTurn(len(services), func(round, i int) error {
		latencies, err := services[i].handOffs(ctx, r.Prefix+"/wake-up", count)
		if err != nil {
			return fmt.Errorf("%s: %w", services[i].name, err)
		}
		slices.Sort(latencies)
		r.Note(rig.Sample{Table: "wake-up", Case: fmt.Sprint(count, " hand-offs"), Target: services[i].name, Base: "etcd",
			Round: round,
			Values: []rig.Value{{Name: rig.P50, Of: rig.Percentile(latencies, 0.5)}, {Name: rig.P99,
				Of: rig.Percentile(latencies, 0.99), Ratio: true}}})
		return nil
	})
}

// handOffs measures so many hand-offs, by pairs of clients in turn.
func (s service) handOffs(ctx context.Context, lock string, count int) (latencies []time.Duration, err error) {
	pairs := make([]pair, min(count, pairsMax))
	lockers, closeAll, err := s.connectAll(ctx, 2*len(pairs)+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	onlooker, queues := lockers[2*len(pairs)].(queue)
	if !queues {
		return nil, errors.New("the service has no queue")
	}
	// Whatever fails ends the waits, before the clients are closed; and a wait that fails ends all.
	ctx, fail := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		fail(nil)
		waiting.Wait()
	}()
	for i := range pairs {
		pairs[i] = pair{
			lock: fmt.Sprintf("%s/%d", lock, i), holder: lockers[2*i], waiter: lockers[2*i+1],
			onlooker: onlooker, waiting: &waiting, fail: fail,
		}
		lease, err := pairs[i].holder.hold(ctx, pairs[i].lock)
		if err != nil {
			return nil, err
		}
		pairs[i].lease = lease
		if err := pairs[i].enqueue(ctx); err != nil {
			return nil, err
		}
	}
	for i := range count {
		took, err := pairs[i%len(pairs)].handOff(ctx)
		if err != nil {
			return nil, fmt.Errorf("hand-off %d: %w", i, err)
		}
		latencies = append(latencies, took)
	}
	for i := range pairs {
		got, err := pairs[i].releaseToWaiter(ctx)
		if err == nil {
			err = got.lease.release(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// pair is two clients that hand one lock to each other: one holds it, the other waits.
type pair struct {
	lock           string
	holder, waiter locker
	onlooker       queue
	waiting        *sync.WaitGroup
	fail           context.CancelCauseFunc

	lease   held       // the holder's
	granted chan grant // to the waiter
	ready   time.Time  // when the waiter has waited for long enough
}

// grant is what a waiter got, and when.
type grant struct {
	lease held
	at    time.Time
	err   error
}

// enqueue lets the waiter wait for the lock, and returns once it is in the queue.
func (p *pair) enqueue(ctx context.Context) error {
	p.granted = make(chan grant, 1)
	p.waiting.Go(func() {
		lease, err := p.waiter.hold(ctx, p.lock)
		p.granted <- grant{lease, time.Now(), err}
		if err != nil {
			p.fail(fmt.Errorf("a waiter: %w", err))
		}
	})
	err := awaitQueue(ctx, p.onlooker, p.lock, 1, lookInterval)
	p.ready = time.Now().Add(calm)
	return err
}

// handOff releases the lock to the waiter and returns how long that took. Then the two have changed roles.
func (p *pair) handOff(ctx context.Context) (time.Duration, error) {
	if !pause(ctx, max(time.Until(p.ready), breath)) {
		return 0, ctx.Err()
	}
	before := time.Now()
	got, err := p.releaseToWaiter(ctx)
	if err != nil {
		return 0, err
	}
	p.lease = got.lease
	p.holder, p.waiter = p.waiter, p.holder
	return got.at.Sub(before), p.enqueue(ctx)
}

// releaseToWaiter lets the holder release the lock, and returns what the waiter got.
func (p *pair) releaseToWaiter(ctx context.Context) (grant, error) {
	if err := p.lease.release(ctx); err != nil {
		return grant{}, err
	}
	got := <-p.granted
	return got, got.err
}

// awaitQueue polls until so many wait.
func awaitQueue(ctx context.Context, onlooker queue, lock string, length int, interval time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	for {
		waiting, err := onlooker.waiting(ctx, lock)
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		if waiting >= length {
			return nil
		}
		if !pause(ctx, interval) {
			return fmt.Errorf("%d wait, not %d: %w", waiting, length, ctx.Err())
		}
	}
}
