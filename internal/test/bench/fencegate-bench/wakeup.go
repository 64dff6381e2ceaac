//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
)

const (
	// calm is how long a waiter waits, at least, before the lock is released to it. What the service still does for a wait
	// that has just begun is not the wake-up: etcd sends a new watcher nothing until a loop of its own, every 100 ms, has
	// come to it.
	calm = 150 * time.Millisecond
	// pairsMax are made ready together, so that not every hand-off costs the calm.
	pairsMax = 32
	// breath is before every release: what the hand-off before has left to do is over.
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
		r.Note("wake-up", fmt.Sprint(count, " hand-offs"), services[i].name, "etcd", round,
			rig.Value{Name: rig.P50, Of: rig.Percentile(latencies, 0.5)},
			rig.Value{Name: rig.P99, Of: rig.Percentile(latencies, 0.99), Ratio: true})
		return nil
	})
}

// handOffs measures so many hand-offs, one after the other: pairs of clients are made ready together.
func (s service) handOffs(ctx context.Context, prefix string, count int) (latencies []time.Duration, err error) {
	together := min(count, pairsMax)
	lockers, closeAll, err := s.connectAll(ctx, 2*together+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
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
	for len(latencies) < count {
		pairs := make([]pair, min(together, count-len(latencies)))
		for i := range pairs {
			lock, waiter := fmt.Sprintf("%s/%d", prefix, i), lockers[2*i+1]
			pairs[i].granted = make(chan grant, 1)
			if pairs[i].held, err = lockers[2*i].hold(ctx, lock); err != nil {
				return nil, err
			}
			waiting.Go(func() {
				lease, err := waiter.hold(ctx, lock)
				got := grant{lease, time.Now()}
				if err != nil {
					fail(fmt.Errorf("a waiter: %w", err))
				}
				pairs[i].granted <- got
			})
			if err := awaitQueue(ctx, lockers[2*together], lock, 1, lookInterval); err != nil {
				return nil, err
			}
		}
		pause(ctx, calm)
		for _, p := range pairs {
			pause(ctx, breath)
			before := time.Now()
			if err := p.held.release(ctx); err != nil {
				return nil, err
			}
			got := <-p.granted
			latencies = append(latencies, got.at.Sub(before))
			if err := errors.Join(ctx.Err(), got.lease.release(ctx)); err != nil {
				return nil, err
			}
		}
	}
	return latencies, nil
}

// pair is a client that holds a lock, and one that waits for it.
type pair struct {
	held    held
	granted chan grant
}

// grant is what a waiter got, and when.
type grant struct {
	lease held
	at    time.Time
}

// awaitQueue polls until so many wait.
func awaitQueue(ctx context.Context, onlooker locker, lock string, length int, interval time.Duration) error {
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
