package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Load is what clients got done.
type Load struct {
	// Latencies of all clients, ascending.
	Latencies []time.Duration
	Took      time.Duration
}

// Do is what a client does once; i counts, from 0, what that client did before.
type Do func(ctx context.Context, client, i int) error

// Repeat lets clients do something over and over, as fast as they can, for a duration: what was begun in time is
// finished, and counts, and so does the first of each client. The first that fails ends it for all, with its error.
func Repeat(ctx context.Context, clients int, duration time.Duration, do Do) (Load, error) {
	return run(ctx, clients, func(begun time.Time, i int) (time.Time, bool) {
		before := time.Now()
		return before, i == 0 || before.Sub(begun) <= duration
	}, do)
}

// RepeatAtRate lets clients do something so many times a second, evenly spaced, whether or not earlier ones are
// finished; each client takes the next that is due when it is free. A latency runs from the moment at which it was due,
// so that what had to wait for a free client counts with its wait: no slow moment hides the requests that it held up
// (coordinated omission, as G. Tene named it). Where a client was free in time, the latency runs from its waking up:
// how late the load's own timer is says nothing of the target.
func RepeatAtRate(ctx context.Context, clients int, perSecond float64, duration time.Duration, do Do) (Load, error) {
	if perSecond <= 0 {
		return Load{}, fmt.Errorf("a rate of %g a second", perSecond)
	}
	var taken atomic.Int64
	interval := float64(time.Second) / perSecond
	return run(ctx, clients, func(begun time.Time, _ int) (time.Time, bool) {
		due := begun.Add(time.Duration(float64(taken.Add(1)-1) * interval))
		if due.Sub(begun) > duration {
			return due, false
		}
		if early := time.Until(due); early > 0 {
			time.Sleep(early)
			due = time.Now()
		}
		return due, true
	}, do)
}

// run lets clients take turns until there are no more. A client's turn i begins at the time that next returns.
func run(ctx context.Context, clients int, next func(begun time.Time, i int) (time.Time, bool), do Do) (Load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, clients)
	begun := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			latencies[client] = make([]time.Duration, 0, 1<<12)
			for i := 0; ctx.Err() == nil; i++ {
				from, more := next(begun, i)
				if !more {
					return
				}
				if err := do(ctx, client, i); err != nil {
					cancel(fmt.Errorf("client %d: %w", client, err))
					return
				}
				latencies[client] = append(latencies[client], time.Since(from))
			}
		})
	}
	running.Wait()
	load := Load{Latencies: slices.Concat(latencies...), Took: time.Since(begun)}
	slices.Sort(load.Latencies)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return Load{}, err
	}
	return load, ctx.Err()
}
