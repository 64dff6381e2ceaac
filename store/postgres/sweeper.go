package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// SweeperConfig says what is tidied, and how often.
type SweeperConfig struct {
	// Interval is the time between sweeps. Default 1 s; at least 10 ms.
	Interval time.Duration
	// LeaseRetention is how long ended leases are remembered, for a late release or the retry of an acquire. The newest
	// lease of a lock is remembered for ever. Its default, and those below, are in the table fence.sweeps.
	LeaseRetention time.Duration
	// RejectionAge is how long rejections are kept.
	RejectionAge time.Duration
	// RejectionsMax is how many rejections are kept.
	RejectionsMax int64
	// AuditRetention is how long entries of the audit log are kept. At least 1 h.
	AuditRetention time.Duration
	// AuditAnonymousMax is the number of newest entries of the audit log beyond which those of callers without a
	// credential are deleted early.
	AuditAnonymousMax int64
}

// withDefaults returns ErrInvalid, naming the flag, for a field outside its limits.
func (c SweeperConfig) withDefaults() (SweeperConfig, error) {
	c.Interval = cmp.Or(c.Interval, time.Second)
	switch {
	case c.Interval < 10*time.Millisecond || c.Interval > time.Hour:
		return c, fmt.Errorf("%w: --sweep-interval is %s, it must be 10ms to 1h", store.ErrInvalid, c.Interval)
	case c.LeaseRetention < time.Second && c.LeaseRetention != 0:
		return c, fmt.Errorf("%w: --lease-retention is %s, it must be at least 1s", store.ErrInvalid, c.LeaseRetention)
	case c.RejectionAge < time.Second && c.RejectionAge != 0:
		return c, fmt.Errorf("%w: --rejection-age is %s, it must be at least 1s", store.ErrInvalid, c.RejectionAge)
	case c.AuditRetention < time.Hour && c.AuditRetention != 0:
		return c, fmt.Errorf("%w: --audit-retention is %s, it must be at least 1h", store.ErrInvalid, c.AuditRetention)
	case c.AuditAnonymousMax < 1 && c.AuditAnonymousMax != 0:
		return c, fmt.Errorf("%w: --audit-anonymous-max is %d, it must be at least 1", store.ErrInvalid, c.AuditAnonymousMax)
	case c.RejectionsMax < 1 && c.RejectionsMax != 0:
		return c, fmt.Errorf("%w: --rejections-max is %d, it must be at least 1", store.ErrInvalid, c.RejectionsMax)
	}
	return c, nil
}

// Sweeper ends expired leases, so that they are seen and counted, and forgets what is old. Nothing waits for it. Any
// number may run on one database: each part of a sweep is done by one of them at a time. A sweep that finds nothing to
// do costs the same however many locks, sessions and rejections there are.
type Sweeper struct {
	store  *Store
	config SweeperConfig
	took   store.Histogram
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

// Stats returns the state now.
func (s *Sweeper) Stats() store.SweepStats {
	stats := store.SweepStats{Took: s.took.Read()}
	if last := s.last.Load(); last != 0 {
		stats.Last = time.UnixMicro(last)
	}
	return stats
}

// Run sweeps until ctx ends. It calls onSwept after every sweep that found something, and onError after every one that
// failed.
func (s *Sweeper) Run(ctx context.Context, onSwept func(store.Swept), onError func(error)) {
	timing.Every(ctx, s.config.Interval, onError, func() error {
		swept, err := s.sweepTraced(ctx)
		if swept != (store.Swept{}) {
			onSwept(swept)
		}
		return err
	})
}

// sweepTraced is a sweep with a trace of its own.
func (s *Sweeper) sweepTraced(ctx context.Context) (swept store.Swept, err error) {
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

const (
	// sweepRoundsMax is how often the parts are done in one sweep, where there is more to do than one statement does.
	sweepRoundsMax = 100
	// sweepSettleMax is how long the sessions that have ended are settled in one round.
	sweepSettleMax = 500 * time.Millisecond
)

// ofAllParts are the reasons for which all parts of a sweep fail.
var ofAllParts = []store.Reason{
	store.ReasonConnection, store.ReasonConnectionsExhausted, store.ReasonReadOnly, store.ReasonNotMigrated,
	store.ReasonWentBack,
}

// sweepPart is a part of a sweep; see fence.sweep. Where age or countMax is 0, the defaults of fence.sweeps count.
type sweepPart struct {
	name     string
	age      time.Duration
	countMax int64
	done     *int64
}

// parts are those of a sweep, the first one first; they count into swept.
func (s *Sweeper) parts(swept *store.Swept) []sweepPart {
	c, uncounted := s.config, new(int64)
	return []sweepPart{
		{"leases", 0, 0, &swept.Expired},
		{"sessions", c.LeaseRetention, 0, &swept.SessionsExpired},
		{"expiries", 0, 0, &swept.Expired},
		{"ended leases", c.LeaseRetention, 0, &swept.LeasesForgotten},
		{"claims", 0, 0, uncounted},
		{"reported", 0, 0, uncounted},
		{"rejections", c.RejectionAge, c.RejectionsMax, &swept.RejectionsForgotten},
		{"gateways", 0, 0, uncounted},
		{"waiting", 0, 0, uncounted},
		{"audit", c.AuditRetention, c.AuditAnonymousMax, &swept.AuditForgotten},
		{"unused", 0, 0, uncounted},
	}
}

// Sweep tidies once, until nothing is left to tidy, or for a hundred rounds. It returns what it did, also beside an
// error, which is ErrUnavailable. A part that fails does not keep the others from being done, unless they would fail for
// the same reason.
func (s *Sweeper) Sweep(ctx context.Context) (store.Swept, error) { return s.sweepTimed(ctx, 0) }

// sweepTimed is Sweep without the parts that another gateway is doing, or did less than the pause ago.
func (s *Sweeper) sweepTimed(ctx context.Context, pause time.Duration) (store.Swept, error) {
	begun := time.Now()
	swept, err := s.sweep(ctx, pause)
	if err == nil {
		s.took.Add(time.Since(begun))
		s.last.Store(time.Now().UnixMicro())
	}
	return swept, err
}

// sweep does all parts in turn, then repeats those with more to do, and each time the first four: so a part with much
// to do does not delay the end of expired leases, nor their count.
func (s *Sweeper) sweep(ctx context.Context, pause time.Duration) (swept store.Swept, err error) {
	parts := s.parts(&swept)
	more := make([]bool, len(parts))
	for round := range sweepRoundsMax {
		for i, part := range parts {
			if round > 0 && i > 3 && !more[i] {
				continue
			}
			due := pause
			if more[i] {
				due = 0
			}
			var failed error
			if more[i], failed = s.sweepPart(ctx, part, due); failed == nil {
				continue
			}
			err = errors.Join(err, failed)
			if store.OutcomeOf(failed) == store.OutcomeNotApplied && slices.Contains(ofAllParts, reasonOf(failed)) {
				return swept, err
			}
		}
		if !slices.Contains(more, true) || ctx.Err() != nil {
			break
		}
	}
	return swept, err
}

// sweepPart does one part once. Then it ends the leases of the sessions that have expired or were ended.
func (s *Sweeper) sweepPart(ctx context.Context, part sweepPart, pause time.Duration) (more bool, err error) {
	switch part.name {
	case "waiting":
		pause *= 60 // it reads all waiters and all watches
	case "audit":
		// Its commit may wait for a standby.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, recorderTimeout)
		defer cancel()
	}
	var done int64
	var unsettled []uuid.UUID
	err = s.store.queryRow(ctx, statement{bounded: true},
		"select done, more, unsettled from fence.sweep($1, $2, null, $3, $4)",
		[]any{part.name, pause, orNull(part.age), orNull(part.countMax)}, &done, &more, &unsettled)
	if err != nil {
		return false, fmt.Errorf("sweep the %s: %w", part.name, err)
	}
	*part.done += done
	left, err := s.store.settleAll(ctx, unsettled, time.Now().Add(sweepSettleMax))
	return more || left, err
}
