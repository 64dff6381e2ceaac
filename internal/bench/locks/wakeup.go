package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
)

// WakeUpSample is one round of hand-offs of one service: from just before the release was sent until the acquire of the
// waiter had returned.
type WakeUpSample struct {
	Service  string  `json:"service"`
	Round    int     `json:"round"`
	HandOffs int     `json:"hand_offs"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
}

const (
	// calm is how long a waiter waits, at least, before the lock is released to it. What the service still does for a wait
	// that has just begun is not the wake-up: etcd sends a new watcher nothing until a loop of its own, every 100 ms, has
	// come to it.
	calm = 150 * time.Millisecond
	// pairsMax hand locks to and fro at the same time, one hand-off after the other, so that not every hand-off costs the
	// calm.
	pairsMax = 32
	// pause is before every release: what the pair before has left to do is over.
	pause = 2 * time.Millisecond

	lookInterval = time.Millisecond
)

// wakeUps measures in turn the services with a queue. Round 0 warms up.
func (c Config) wakeUps(ctx context.Context, services []service, run string, report *Report) error {
	for round := range c.Rounds + 1 {
		for _, s := range services {
			if !s.queues {
				continue
			}
			count := c.HandOffs
			if round == 0 {
				count = max(1, count/10)
			}
			latencies, err := s.handOffs(ctx, run+"/wake-up", count)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round == 0 {
				continue
			}
			slices.Sort(latencies)
			sample := WakeUpSample{
				Service: s.name, Round: round, HandOffs: len(latencies),
				P50MS: bench.Percentile(latencies, 0.50), P99MS: bench.Percentile(latencies, 0.99),
			}
			report.WakeUps = append(report.WakeUps, sample)
			c.progress("round %d: wake-up, %-12s p50 %7.2f ms, p99 %7.2f ms", round, s.name, sample.P50MS, sample.P99MS)
		}
	}
	return nil
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
		fail(nil)
		waiting.Wait()
	}()
	for i := range pairs {
		pairs[i] = pair{
			lock: fmt.Sprintf("%s/%d", lock, i), holder: lockers[2*i], waiter: lockers[2*i+1],
			onlooker: onlooker, waiting: &waiting, fail: fail,
		}
		if err := pairs[i].begin(ctx); err != nil {
			return nil, because(ctx, err)
		}
	}
	for i := range count {
		took, err := pairs[i%len(pairs)].handOff(ctx)
		if err != nil {
			return nil, fmt.Errorf("hand-off %d: %w", i, because(ctx, err))
		}
		latencies = append(latencies, took)
	}
	for i := range pairs {
		if err := pairs[i].end(ctx); err != nil {
			return nil, because(ctx, err)
		}
	}
	return latencies, nil
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
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return fmt.Errorf("%d wait, not %d: %w", waiting, length, ctx.Err())
		}
	}
}
