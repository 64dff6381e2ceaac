//go:build unix

package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench"
)

// CrowdSample is one round of many waiters for one lock, half of them at each of two gateways.
type CrowdSample struct {
	Round    int    `json:"round"`
	Waiters  int    `json:"waiters"`
	Protocol string `json:"protocol"`
	// Connections carry the waiters' requests. Each process may have OpenFilesMax files open.
	Connections  int    `json:"connections"`
	OpenFilesMax uint64 `json:"open_files_max"`
	// QueueSeconds is how long it took until all were in the queue. They come group by group.
	QueueSeconds float64 `json:"queue_seconds"`
	// Of each gateway: its memory before the first waited and after all have for a while, and the difference to each of
	// its waiters.
	ResidentBeforeKiB []float64 `json:"resident_before_kib"`
	ResidentKiB       []float64 `json:"resident_kib"`
	KiBPerWaiter      []float64 `json:"kib_per_waiter"`
	// Empty is the load while the lock was held without waiters, Idle while all of them waited.
	Empty IdleLoad `json:"empty"`
	Idle  IdleLoad `json:"idle"`
	// DrainSeconds is from just before the holder released until the last waiter had been granted the lock and released
	// it.
	DrainSeconds    float64 `json:"drain_seconds"`
	GrantsPerSecond float64 `json:"grants_per_second"`
}

const (
	// groupMax is how many waiters share a client; over HTTP/2, one connection: a gateway takes 100 requests at once on
	// one.
	groupMax = 80
	// crowdTTL outlasts a round: the holder does not renew.
	crowdTTL = time.Hour
	// filesSpare are for all else than the waiters' connections.
	filesSpare = 1000

	drainProgressInterval = time.Second
	pollInterval          = 20 * time.Millisecond

	crowdGateways = 2
)

// crowds measures a crowd in each round, with gateways that did nothing before.
func (c Config) crowds(ctx context.Context, run string, report *Report) error {
	for round := range c.Rounds {
		sample, err := c.crowd(ctx, fmt.Sprintf("%s/crowd/%d", run, round+1), round+1)
		if err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
		report.Crowds = append(report.Crowds, sample)
		c.progress("round %d: crowd of %d: drained in %.1f s", round+1, c.Waiters, sample.DrainSeconds)
	}
	return nil
}

func (c Config) crowd(ctx context.Context, lock string, round int) (sample CrowdSample, err error) {
	sample = CrowdSample{Round: round, Waiters: c.Waiters, Protocol: c.Protocol}
	sample.OpenFilesMax, err = raiseOpenFiles(uint64(c.Waiters + filesSpare))
	if err != nil {
		return sample, err
	}
	if needed := uint64(c.Waiters + filesSpare); c.Protocol == HTTP1 && sample.OpenFilesMax < needed {
		return sample, bench.Invalid("--crowd-protocol %s with %d --waiters needs %d open files, and %d are allowed here",
			HTTP1, c.Waiters, needed, sample.OpenFilesMax)
	}
	running, err := c.startGateways(ctx, crowdGateways)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	db, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	holder, err := newGatewayLocker(running[0].URL, "bench-holder", HTTP1)
	if err != nil {
		return sample, err
	}
	holder.ttl = crowdTTL
	release, err := holder.acquire(ctx, lock)
	if err != nil {
		return sample, err
	}

	// A failure from here on ends the waiters before the gateways: a gateway that ends waits for its waiters.
	ctx, cancel := context.WithCancelCause(ctx)
	crowd := &crowdQueue{lock: lock, holder: holder, cancel: cancel}
	defer func() {
		cancel(nil)
		crowd.running.Wait()
	}()
	if crowd.groups, err = c.connectGroups(ctx, running); err != nil {
		return sample, err
	}
	if err := c.observeCrowd(ctx, observer{db, running.pids()}, crowd, &sample); err != nil {
		return sample, because(ctx, err)
	}
	took, err := c.drain(ctx, crowd, release)
	sample.DrainSeconds, sample.GrantsPerSecond = took.Seconds(), float64(c.Waiters)/took.Seconds()
	return sample, because(ctx, err)
}

// observeCrowd looks at the load and the memory before and after the crowd has come.
func (c Config) observeCrowd(ctx context.Context, o observer, crowd *crowdQueue, sample *CrowdSample) (err error) {
	c.progress("crowd: nothing happens for %s", c.Settle+c.Idle)
	if sample.Empty, sample.ResidentBeforeKiB, err = o.idle(ctx, c.Settle, c.Idle); err != nil {
		return err
	}
	begun := time.Now()
	if sample.Connections, err = c.enqueue(ctx, crowd); err != nil {
		return err
	}
	sample.QueueSeconds = time.Since(begun).Seconds()
	c.progress("crowd: %d wait after %.1f s; nothing happens for %s", c.Waiters, sample.QueueSeconds, c.Settle+c.Idle)
	if sample.Idle, sample.ResidentKiB, err = o.idle(ctx, c.Settle, c.Idle); err != nil {
		return err
	}
	for i, waiters := range crowd.perGateway() {
		sample.KiBPerWaiter = append(sample.KiBPerWaiter,
			(sample.ResidentKiB[i]-sample.ResidentBeforeKiB[i])/float64(waiters))
	}
	return nil
}

// drain lets the holder release, and waits until all had the lock.
func (c Config) drain(
	ctx context.Context, crowd *crowdQueue, release func(context.Context) error,
) (time.Duration, error) {
	tick := time.NewTicker(drainProgressInterval)
	defer tick.Stop()
	begun := time.Now()
	if err := release(ctx); err != nil {
		return 0, err
	}
	drained := make(chan time.Time, 1)
	go func() {
		crowd.running.Wait()
		drained <- time.Now()
	}()
	for {
		select {
		case at := <-drained:
			return at.Sub(begun), context.Cause(ctx)
		case <-tick.C:
			c.progress("crowd: %d of %d have had the lock after %.0f s", crowd.served.Load(), c.Waiters,
				time.Since(begun).Seconds())
		}
	}
}
