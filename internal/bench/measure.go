package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Sample is one measurement of one target.
type Sample struct {
	Target    string  `json:"target"`
	Clients   int     `json:"clients"`
	Round     int     `json:"round"`
	Writes    int     `json:"writes"`
	PerSecond float64 `json:"per_second"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
}

// measure lets clients write as fast as they can for a duration, each to its own share of the resources. A write that fails ends it.
func measure(ctx context.Context, t target, resources []resource, clients, valueBytes int, duration time.Duration) (Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, clients)
	begun := time.Now()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			var err error
			latencies[client], err = write(ctx, t, share(resources, client, clients), valueBytes, begun.Add(duration))
			if err != nil {
				cancel(fmt.Errorf("%s, client %d: %w", t.name, client, err))
			}
		})
	}
	running.Wait()
	took := time.Since(begun)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return Sample{}, err
	}
	return summarize(t.name, clients, slices.Concat(latencies...), took), ctx.Err()
}

func write(ctx context.Context, t target, resources []resource, valueBytes int, until time.Time) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, 1<<14)
	value := make([]byte, valueBytes)
	random := rand.NewChaCha8([32]byte{1})
	for i := 0; ctx.Err() == nil; i++ {
		before := time.Now()
		if before.After(until) {
			break
		}
		_, _ = random.Read(value)
		if err := t.write(ctx, &resources[i%len(resources)], value); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(before))
	}
	return latencies, nil
}

// share is the part of the resources that is one client's.
func share(resources []resource, client, clients int) []resource {
	return resources[client*len(resources)/clients : (client+1)*len(resources)/clients]
}

func summarize(name string, clients int, latencies []time.Duration, took time.Duration) Sample {
	slices.Sort(latencies)
	return Sample{
		Target: name, Clients: clients, Writes: len(latencies), PerSecond: float64(len(latencies)) / took.Seconds(),
		P50MS: percentile(latencies, 0.50), P99MS: percentile(latencies, 0.99),
	}
}

// percentile of sorted latencies, in milliseconds, by the nearest rank.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := min(int(p*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[rank].Microseconds()) / 1000
}
