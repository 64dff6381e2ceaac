package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// sweepRowsMax is how much one statement tidies of each kind, so that none takes long.
	sweepRowsMax = 1000
	// sweepRoundsMax is how often the parts are done in one sweep, where there is more to do than one statement does.
	sweepRoundsMax = 100
	// sweepSettleMax is how long the sessions that have ended are settled in one round.
	sweepSettleMax = 500 * time.Millisecond
	// eventsAge and eventsMax are how long, and how many, events of watched locks are kept for subscribers that resume a
	// watch.
	eventsAge = 10 * time.Minute
	eventsMax = 100_000
)

// sweepPart is a part of a sweep; see fence.sweep.
type sweepPart struct {
	name     string
	rowsMax  int
	age      time.Duration
	countMax int64
	done     *int64
}

// parts are those of a sweep, the first one first; they count into swept.
func (s *Sweeper) parts(swept *Swept) []sweepPart {
	c, uncounted := s.config, new(int64)
	return []sweepPart{
		{"holds", sweepRowsMax, 0, 0, &swept.Expired},
		{"leases", sweepRowsMax, 0, 0, &swept.Expired},
		{"sessions", sweepRowsMax, c.LeaseRetention, 0, &swept.SessionsExpired},
		{"expiries", sweepRowsMax, 0, 0, &swept.Expired},
		{"ended leases", sweepRowsMax, c.LeaseRetention, 0, &swept.LeasesForgotten},
		{"reported", sweepRowsMax, 0, 0, uncounted},
		{"rejections", sweepRowsMax, c.RejectionAge, c.RejectionsMax, &swept.RejectionsForgotten},
		{"gateways", sweepRowsMax, 0, 0, uncounted},
		{"waiting", sweepRowsMax, eventsAge, 0, uncounted},
		{"events", sweepRowsMax, eventsAge, eventsMax, uncounted},
		{"audit", sweepRowsMax, c.AuditRetention, c.AuditAnonymousMax, &swept.AuditForgotten},
		{"unused", sweepRowsMax, 0, 0, uncounted},
	}
}

// Sweep tidies once, until nothing is left to tidy, or for a hundred rounds. It returns what it did, also beside an
// error, which is ErrUnavailable. A part that fails does not keep the others from being done.
func (s *Sweeper) Sweep(ctx context.Context) (Swept, error) { return s.sweepTimed(ctx, 0) }

// sweepTimed is Sweep, without the parts that another gateway does, or did less than the pause ago.
func (s *Sweeper) sweepTimed(ctx context.Context, pause time.Duration) (Swept, error) {
	begun := time.Now()
	swept, err := s.sweep(ctx, pause)
	if err == nil {
		s.took.Add(time.Since(begun))
		s.last.Store(time.Now().UnixMicro())
	}
	return swept, err
}

// sweep does all parts in turn, then again those that have more to do, and each time the first two: what one part has
// left over does not make the events of expired leases late.
func (s *Sweeper) sweep(ctx context.Context, pause time.Duration) (swept Swept, err error) {
	parts := s.parts(&swept)
	more := make([]bool, len(parts))
	for round := range sweepRoundsMax {
		for i, part := range parts {
			if round > 0 && i > 1 && !more[i] {
				continue
			}
			due := pause
			if more[i] {
				due = 0
			}
			var failed error
			more[i], failed = s.sweepPart(ctx, part, due)
			err = errors.Join(err, failed)
		}
		if !slices.Contains(more, true) || ctx.Err() != nil {
			break
		}
	}
	return swept, err
}

// sweepPart does one part once. Then it ends the leases of the sessions that have expired or were ended.
func (s *Sweeper) sweepPart(ctx context.Context, part sweepPart, pause time.Duration) (more bool, err error) {
	if part.name == "waiting" {
		pause *= 60 // it reads all waiters and all watches
	}
	var done int64
	var unsettled []uuid.UUID
	err = s.store.queryRow(ctx, statement{bounded: true},
		"select done, more, unsettled from fence.sweep($1, $2, $3, $4, $5)",
		[]any{part.name, pause, part.rowsMax, part.age, part.countMax}, &done, &more, &unsettled)
	if err != nil {
		return false, fmt.Errorf("sweep the %s: %w", part.name, err)
	}
	*part.done += done
	left, err := s.store.settleAll(ctx, unsettled, time.Now().Add(sweepSettleMax))
	return more || left, err
}
