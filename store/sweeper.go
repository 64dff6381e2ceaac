package store

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fencegate/fencegate/store/internal/timing"
)

// SweeperConfig says what is tidied, and how often.
type SweeperConfig struct {
	// Interval is the time between sweeps. Default 1 s; at least 10 ms.
	Interval time.Duration
	// LeaseRetention is how long ended leases are remembered, for a late release or the retry of an acquire. The newest
	// lease of a lock is remembered for ever. Default 10 min.
	LeaseRetention time.Duration
	// RejectionAge is how long rejections are kept. Default 7 days.
	RejectionAge time.Duration
	// RejectionsMax is how many rejections are kept. Default 100,000.
	RejectionsMax int64
	// AuditRetention is how long entries of the audit log are kept. Default 400 days; at least 1 h.
	AuditRetention time.Duration
	// AuditAnonymousMax: entries of the audit log by callers without a credential are deleted sooner, if they are not
	// among so many newest entries. Default 100,000.
	AuditAnonymousMax int64
}

// withDefaults returns ErrInvalid for what is outside its limits, naming the flag.
func (c SweeperConfig) withDefaults() (SweeperConfig, error) {
	c.Interval = cmp.Or(c.Interval, time.Second)
	c.LeaseRetention = cmp.Or(c.LeaseRetention, 10*time.Minute)
	c.RejectionAge = cmp.Or(c.RejectionAge, 7*24*time.Hour)
	c.RejectionsMax = cmp.Or(c.RejectionsMax, 100_000)
	c.AuditRetention = cmp.Or(c.AuditRetention, 400*24*time.Hour)
	c.AuditAnonymousMax = cmp.Or(c.AuditAnonymousMax, 100_000)
	switch {
	case c.Interval < 10*time.Millisecond || c.Interval > time.Hour:
		return c, fmt.Errorf("%w: --sweep-interval is %s, it must be 10ms to 1h", ErrInvalid, c.Interval)
	case c.LeaseRetention < time.Second:
		return c, fmt.Errorf("%w: --lease-retention is %s, it must be at least 1s", ErrInvalid, c.LeaseRetention)
	case c.RejectionAge < time.Second:
		return c, fmt.Errorf("%w: --rejection-age is %s, it must be at least 1s", ErrInvalid, c.RejectionAge)
	case c.AuditRetention < time.Hour:
		return c, fmt.Errorf("%w: --audit-retention is %s, it must be at least 1h", ErrInvalid, c.AuditRetention)
	case c.AuditAnonymousMax < 1:
		return c, fmt.Errorf("%w: --audit-anonymous-max is %d, it must be at least 1", ErrInvalid, c.AuditAnonymousMax)
	case c.RejectionsMax < 1:
		return c, fmt.Errorf("%w: --rejections-max is %d, it must be at least 1", ErrInvalid, c.RejectionsMax)
	}
	return c, nil
}

// Swept counts what a sweep tidied.
type Swept struct {
	// Expired leases, whatever has ended them, count in one sweep each.
	Expired                                              int64
	LeasesForgotten, RejectionsForgotten, AuditForgotten int64
	// SessionsExpired had not been kept alive.
	SessionsExpired int64
}

// Sweeper ends expired leases, so that they are seen and counted, and forgets what is old. Nothing waits for it. Any
// number may run on one database: each part of a sweep is done by one of them at a time. A sweep that finds nothing to
// do costs the same however many locks, sessions, rejections and events there are.
type Sweeper struct {
	store  *Store
	config SweeperConfig
	took   Histogram
	last   atomic.Int64 // in microseconds since 1970; 0: none yet
}

// NewSweeper returns a Sweeper that waits to be Run, or ErrInvalid if the configuration is outside its limits.
func NewSweeper(on *Store, config SweeperConfig) (*Sweeper, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Sweeper{store: on, config: config}, nil
}

// SweepStats are those of the sweeps that were whole.
type SweepStats struct {
	Took Durations
	// Last is when the last one ended, by this process's clock; zero if there was none yet.
	Last time.Time
}

// Stats returns the state now.
func (s *Sweeper) Stats() SweepStats {
	stats := SweepStats{Took: s.took.Read()}
	if last := s.last.Load(); last != 0 {
		stats.Last = time.UnixMicro(last)
	}
	return stats
}

// Run sweeps until ctx ends. It calls onSwept after every sweep that found something, and onError after every one that
// failed.
func (s *Sweeper) Run(ctx context.Context, onSwept func(Swept), onError func(error)) {
	timing.Every(ctx, s.config.Interval, onError, func() error {
		swept, err := s.sweepTraced(ctx)
		if swept != (Swept{}) {
			onSwept(swept)
		}
		return err
	})
}

// sweepTraced is a sweep with a trace of its own.
func (s *Sweeper) sweepTraced(ctx context.Context) (swept Swept, err error) {
	err = s.store.traced(ctx, "sweep", func(ctx context.Context) error {
		swept, err = s.sweepTimed(ctx, s.config.Interval*9/10) // a timer may come early
		return err
	}, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.Int64("fencegate.swept.leases_expired", swept.Expired),
			attribute.Int64("fencegate.swept.leases_forgotten", swept.LeasesForgotten),
			attribute.Int64("fencegate.swept.rejections_forgotten", swept.RejectionsForgotten),
			attribute.Int64("fencegate.swept.sessions_expired", swept.SessionsExpired),
		}
	})
	return swept, err
}
