package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Load is what clients got done.
type Load struct {
	// Latencies of all clients, ascending.
	Latencies []time.Duration
	Took      time.Duration
}

// PerSecond is how much was done in a second.
func (l Load) PerSecond() float64 { return float64(len(l.Latencies)) / l.Took.Seconds() }

// Repeat lets clients do something over and over, as fast as they can, for a duration: what was begun in time is finished, and counts. The
// first that fails ends it for all, with its error.
func Repeat(ctx context.Context, clients int, duration time.Duration, do func(ctx context.Context, client, i int) error) (Load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, clients)
	begun := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			latencies[client] = make([]time.Duration, 0, 1<<12)
			for i := 0; ctx.Err() == nil; i++ {
				before := time.Now()
				if before.Sub(begun) > duration {
					return
				}
				if err := do(ctx, client, i); err != nil {
					cancel(fmt.Errorf("client %d: %w", client, err))
					return
				}
				latencies[client] = append(latencies[client], time.Since(before))
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
